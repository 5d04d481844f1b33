//! CPU profiles on systems where none are taken.

use crate::ProfileError;

/// Returns no profile.
///
/// # Errors
/// Always [`ProfileError::NotLinux`].
pub fn cpu(_wait: impl FnOnce()) -> Result<Vec<u8>, ProfileError> {
    Err(ProfileError::NotLinux)
}
