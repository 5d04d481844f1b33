//! The error of requests that are refused because the memory budget is used up.

use admission::memory::MemoryAccount;
use execute::GraphqlError;

/// Returns the error of a request that is refused now, with the time after which the client may try again.
pub fn memory_used_up(account: &MemoryAccount) -> GraphqlError {
    let seconds = account.retry_after_seconds(fastrand::u64(..));
    let message = format!(
        "the router has no memory left for this request (`limits.memory`): try again in {seconds} s"
    );
    GraphqlError::overloaded(message, seconds)
}

#[cfg(test)]
mod tests {
    use execute::ErrorCode;

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
