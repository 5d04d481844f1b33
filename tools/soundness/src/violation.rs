//! The result of a failed check, and the macro that returns it.

/// A violation of the rules by a plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the plan is not sound: {message}")]
pub struct Unsound {
    message: Box<str>,
    /// True if no violation was found, but a limit on the size of checks was reached.
    pub(crate) is_too_large: bool,
}

impl Unsound {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into().into(), is_too_large: false }
    }

    pub(crate) fn too_large() -> Self {
        Self { message: "it is too large to be checked".into(), is_too_large: true }
    }
}

/// Returns an [`Unsound`] with the formatted message from the calling function.
macro_rules! unsound {
    ($($text:tt)*) => { return Err(crate::violation::Unsound::new(format!($($text)*))) };
}
pub(crate) use unsound;
