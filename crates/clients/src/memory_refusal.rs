//! The error of requests that are refused because the memory budget is used up.

use std::num::NonZeroU16;

use admission::memory::MemoryAccount;
use execute::{ErrorCode, GraphqlError};

/// Returns the error of a request that is refused now, with the time after which the client may try again.
pub fn memory_used_up(account: &MemoryAccount) -> GraphqlError {
    let seconds = account.retry_after_seconds(fastrand::u64(..));
    let message = format!(
        "the router has no memory left for this request (`limits.memory`): try again in {seconds} s"
    );
    let mut error = GraphqlError::new(ErrorCode::Overloaded, message);
    error.extensions = Some(format!(r#"{{"retryAfter":{seconds}}}"#).into());
    error.retry_after_seconds = NonZeroU16::new(u16::try_from(seconds).unwrap_or(u16::MAX));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_when_to_come_back() {
        let error = memory_used_up(&MemoryAccount::new(1 << 30));
        let seconds = error.retry_after_seconds.expect("a time");
        assert_eq!(error.code, ErrorCode::Overloaded);
        assert_eq!(error.extensions.as_deref(), Some(&*format!(r#"{{"retryAfter":{seconds}}}"#)));
        assert!((1..=2).contains(&seconds.get()), "{seconds}");
    }
}
