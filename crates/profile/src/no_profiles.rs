//! Profiles of CPU and memory in a build or on a system that takes none.

use crate::ProfileError;

/// The reason why there are no profiles.
const REASON: ProfileError =
    if cfg!(target_os = "linux") { ProfileError::NotBuilt } else { ProfileError::NotLinux };

/// Returns no profile.
///
/// # Errors
/// Always [`ProfileError::NotBuilt`] or [`ProfileError::NotLinux`].
pub fn cpu(_wait: impl FnOnce()) -> Result<Vec<u8>, ProfileError> {
    Err(REASON)
}

/// Returns no profile.
///
/// # Errors
/// Always [`ProfileError::NotBuilt`] or [`ProfileError::NotLinux`].
pub fn heap() -> Result<Vec<u8>, ProfileError> {
    Err(REASON)
}
