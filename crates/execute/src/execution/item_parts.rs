//! Divides a request for entities into several by the part to which each representation belongs.

use std::ops::Range;

use crate::representations::{CollectedBatch, CollectedObject};

/// One part of a divided request.
#[derive(Debug, Default)]
pub(super) struct RequestPart {
    /// The request body with the representations of this part. Every list is there; some may be empty.
    pub(super) body: Vec<u8>,
    /// The objects of this part, by batch.
    pub(super) collected: Vec<CollectedBatch>,
}

/// Divides a request into `count` parts. `items` are the positions of its representations by batch, and `part_of` the
/// part of each. Objects go with their representation.
pub(super) fn divide_request(
    body: &[u8],
    collected: Vec<CollectedBatch>,
    items: &[Vec<Range<usize>>],
    part_of: &[Vec<u8>],
    count: usize,
) -> Vec<RequestPart> {
    let lists: Vec<Range<usize>> = collected.iter().map(|batch| batch.list.clone()).collect();
    let mut parts: Vec<RequestPart> = (0..count)
        .map(|part| {
            let (body, collected) = select_items(body, &lists, items, part_of, part as u8);
            RequestPart { body, collected }
        })
        .collect();
    for (number, batch) in collected.into_iter().enumerate() {
        // The index of each representation within its part.
        let mut counts = vec![0_u32; count];
        let own: Vec<(usize, u32)> = part_of[number]
            .iter()
            .map(|&part| {
                let part = usize::from(part);
                counts[part] += 1;
                (part, counts[part] - 1)
            })
            .collect();
        for object in batch.objects {
            let (part, item) = own[object.item as usize];
            parts[part].collected[number].objects.push(CollectedObject { item, ..object });
        }
    }
    parts
}

/// Writes the request with the representations of one part. Also returns its batches, without objects.
pub(super) fn select_items(
    body: &[u8],
    lists: &[Range<usize>],
    items: &[Vec<Range<usize>>],
    part_of: &[Vec<u8>],
    part: u8,
) -> (Vec<u8>, Vec<CollectedBatch>) {
    let mut text = Vec::with_capacity(body.len());
    let mut collected = Vec::with_capacity(lists.len());
    let mut at = 0;
    for (number, list) in lists.iter().enumerate() {
        text.extend_from_slice(&body[at..list.start]);
        at = list.end;
        let start = text.len();
        text.push(b'[');
        let mut count = 0;
        let own = items[number].iter().zip(&part_of[number]).filter(|(_, of)| **of == part);
        for (item, _) in own {
            if count > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&body[item.clone()]);
            count += 1;
        }
        text.push(b']');
        collected.push(CollectedBatch {
            objects: Vec::new(),
            items: count,
            remembered: Vec::new(),
            list: start..text.len(),
        });
    }
    text.extend_from_slice(&body[at..]);
    (text, collected)
}

#[cfg(test)]
mod tests {
    use astjson::Document;

    use super::*;
    use crate::item_lists::list_items;

    #[test]
    fn representations_and_their_objects_go_to_their_parts() {
        let body =
            br#"{"query":"q","variables":{"a":[{"id":1},{"id":2},{"id":3}],"b":[{"id":9}]}}"#;
        let find = |text: &str, from: usize| {
            let found = body[from..].windows(text.len()).position(|it| it == text.as_bytes());
            from + found.expect("the text is there")
        };
        let list = |name: &str| {
            let start = find(name, 0) + name.len();
            start..find("]", start) + 1
        };
        let lists = [list("\"a\":"), list("\"b\":")];
        let items: Vec<_> = lists.iter().map(|list| list_items(body, list.clone())).collect();
        let mut document = Document::new();
        let node = document.new_null();
        let object = |item| CollectedObject { node, item, target: 0 };
        let batch = |list: &Range<usize>, objects: Vec<CollectedObject>, items| CollectedBatch {
            objects,
            items,
            remembered: Vec::new(),
            list: list.clone(),
        };
        let collected = vec![
            batch(&lists[0], vec![object(2), object(0), object(1), object(2)], 3),
            batch(&lists[1], vec![object(0)], 1),
        ];
        let parts = divide_request(body, collected, &items, &[vec![1, 0, 1], vec![0]], 2);
        let text = |part: &RequestPart| String::from_utf8(part.body.clone()).expect("text");
        assert_eq!(text(&parts[0]), r#"{"query":"q","variables":{"a":[{"id":2}],"b":[{"id":9}]}}"#);
        assert_eq!(
            text(&parts[1]),
            r#"{"query":"q","variables":{"a":[{"id":1},{"id":3}],"b":[]}}"#
        );
        let indices = |part: &RequestPart, batch: usize| {
            part.collected[batch].objects.iter().map(|it| it.item).collect::<Vec<_>>()
        };
        assert_eq!((indices(&parts[0], 0), indices(&parts[0], 1)), (vec![0], vec![0]));
        assert_eq!((indices(&parts[1], 0), indices(&parts[1], 1)), (vec![1, 0, 1], vec![]));
        let list = parts[1].collected[0].list.clone();
        assert_eq!(&parts[1].body[list], br#"[{"id":1},{"id":3}]"#);
    }
}
