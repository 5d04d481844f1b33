//! Heap profiles in a build whose allocator takes none.

use crate::ProfileError;

/// Returns no profile.
///
/// # Errors
/// Always [`ProfileError::NotBuilt`].
pub fn heap() -> Result<Vec<u8>, ProfileError> {
    Err(ProfileError::NotBuilt)
}
