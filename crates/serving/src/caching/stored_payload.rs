//! The form of a whole response in its store.

use std::sync::Arc;

use bytes::Bytes;
use cache::{FoldedPolicy, Validator};
use execute::Payload;

/// The parts of a payload beside its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredExtra {
    pub(super) splice: u64,
    /// Computed once, because hashing the text costs as much as everything else that a hit does.
    pub(super) validator: Validator,
    pub(super) cost: Option<u64>,
}

impl StoredExtra {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend_from_slice(&self.splice.to_le_bytes());
        bytes.extend_from_slice(&self.validator.hash().to_le_bytes());
        bytes.extend(self.cost.into_iter().flat_map(u64::to_le_bytes));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let splice = words.next()?;
        let (low, high) = (words.next()?, words.next()?);
        let validator = Validator::from_hash(u128::from(high) << 64 | u128::from(low));
        Some(Self { splice, validator, cost: words.next() })
    }
}

/// Returns the payload of a stored response; `None` if `extra` has another form.
pub(super) fn stored_payload(
    body: Bytes,
    extra: &[u8],
    mut caching: Option<FoldedPolicy>,
) -> Option<Payload> {
    let StoredExtra { splice, validator, cost } = StoredExtra::from_bytes(extra)?;
    if let Some(caching) = &mut caching {
        caching.validator = Some(validator);
    }
    Some(Payload {
        splice: usize::try_from(splice).ok().filter(|it| *it <= body.len())?,
        bytes: body,
        has_data: true,
        errors: 0,
        first_error: None,
        subgraph_requests: 0,
        headers: None,
        cost,
        caching: caching.map(Arc::new),
        revision: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_response_is_the_payload_that_was_stored() {
        let text = r#"{"data":{"a":1}}"#;
        let validator = Validator::of(text.as_bytes());
        for cost in [None, Some(7)] {
            let extra = StoredExtra { splice: 12, validator, cost };
            assert_eq!(StoredExtra::from_bytes(&extra.to_bytes()), Some(extra));
            let caching = Some(FoldedPolicy::default());
            let payload = stored_payload(text.into(), &extra.to_bytes(), caching);
            let payload = payload.expect("a payload");
            assert_eq!((payload.splice, payload.cost, payload.errors), (12, cost, 0));
            assert_eq!(payload.caching.as_ref().expect("a policy").validator, Some(validator));
            let changed = payload.with_extension("cost", "1");
            assert_eq!(changed.caching.expect("a policy").validator, None);
        }
        assert!(stored_payload("{}".into(), &[1, 0, 0], None).is_none());
        let beyond = StoredExtra { splice: 3, validator, cost: None };
        assert!(stored_payload("{}".into(), &beyond.to_bytes(), None).is_none());
    }
}
