//! The state of the renewals of a client's token on one connection. `token_renewal` acts on it.

use clients::authentication::PresentedToken;

/// The renewals of one connection that are not finished.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// True while a worker verifies a token. Others wait, so that a client has one verification at a time.
    pub(super) is_verifying: bool,
    /// The latest token that waits. An older one is of no interest.
    pub(super) next: Option<PresentedToken>,
    /// The operations that were starting when the token was renewed. They are checked once they are live.
    pub(super) starting: Vec<u32>,
}
