//! The difference of two JSON texts as a JSON Patch (RFC 6902), by the crate `json-patch`.
//!
//! Two things are added to the crate. Scalars keep their exact text: numbers would otherwise be rounded. And lists are
//! aligned first: the crate compares elements by their places, so that one new element at the head of a list would
//! replace all elements behind it. Objects with a member `id` are the same if that and `__typename` are equal, as in
//! the caches of clients; other elements are the same if they are equal.

use std::collections::{HashMap, VecDeque};

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};

/// Returns the text of the operations that turn `from` into `to`, an array. `None` if that is not smaller than `to`, or
/// one of them is not JSON.
pub(super) fn difference(from: &Bytes, to: &Bytes) -> Option<Bytes> {
    let (mut aligned, wanted) = (read(from)?, read(to)?);
    let mut operations = Vec::new();
    align_lists(&mut aligned, &wanted, &mut PointerBuf::new(), &mut operations);
    operations.extend(json_patch::diff(&aligned, &wanted).0);
    print_operations(&operations, to.len())
}

/// Reads a text. Each scalar becomes a string that holds its text, strings with their quotes.
fn read(text: &Bytes) -> Option<Value> {
    let mut document = Document::new();
    let root = document.parse(text.clone()).ok()?;
    Some(value_of(&document, root))
}

/// Its depth is limited by the parser.
fn value_of(document: &Document, node: NodeId) -> Value {
    match document.kind(node) {
        Kind::Array => {
            Value::Array(document.elements(node).map(|it| value_of(document, it)).collect())
        }
        Kind::Object => {
            let members = document.members(node);
            let members = members.map(|(key, it)| (key.into_owned(), value_of(document, it)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => {
            Value::String(document.raw(node).to_owned())
        }
    }
}

/// Adds and removes elements of lists in `from`, so that the same elements have the same places as in `to`. Appends the
/// operations that do this.
fn align_lists(
    from: &mut Value,
    to: &Value,
    place: &mut PointerBuf,
    operations: &mut Vec<PatchOperation>,
) {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            for (key, from) in from {
                if let Some(to) = to.get(key) {
                    place.push_back(key);
                    align_lists(from, to, place, operations);
                    place.pop_back();
                }
            }
        }
        (Value::Array(from), Value::Array(to)) => {
            align(from, to, place, operations);
            for (index, (from, to)) in from.iter_mut().zip(to).enumerate() {
                place.push_back(index);
                align_lists(from, to, place, operations);
                place.pop_back();
            }
        }
        _ => {}
    }
}

/// Aligns one list. It has the length of `to` afterwards.
fn align(
    list: &mut Vec<Value>,
    to: &[Value],
    place: &PointerBuf,
    operations: &mut Vec<PatchOperation>,
) {
    let anchors = anchors(list, to);
    let at = |index: usize| {
        let mut path = place.clone();
        path.push_back(index);
        path
    };
    let ends = (list.len(), to.len());
    let (mut before, mut taken) = (std::mem::take(list).into_iter(), 0);
    for (anchor_from, anchor_to) in anchors.into_iter().chain([ends]) {
        // Elements between two anchors are pairs by their places; `json_patch::diff` compares them.
        let (old, new) = (anchor_from - taken, anchor_to - list.len());
        list.extend(before.by_ref().take(old.min(new)));
        for _ in new..old {
            let path = at(list.len());
            operations.push(PatchOperation::Remove(RemoveOperation { path }));
            before.next();
        }
        while let Some(added) = to.get(list.len()).filter(|_| list.len() < anchor_to) {
            let (path, value) = (at(list.len()), added.clone());
            operations.push(PatchOperation::Add(AddOperation { path, value }));
            list.push(added.clone());
        }
        taken = anchor_from + 1;
        list.extend(before.next());
    }
}

/// Returns the places of the same elements in both lists, in ascending order of both: those at the ends of the lists,
/// and of those between them as many as possible.
fn anchors(from: &[Value], to: &[Value]) -> Vec<(usize, usize)> {
    let is_same = |pair: &(&Value, &Value)| ElementId::of(pair.0) == ElementId::of(pair.1);
    let head = from.iter().zip(to).take_while(is_same).count();
    let (middle_from, middle_to) = (&from[head..], &to[head..]);
    let tail = middle_from.iter().rev().zip(middle_to.iter().rev()).take_while(is_same).count();
    let middle_from = &middle_from[..middle_from.len() - tail];
    let middle_to = &middle_to[..middle_to.len() - tail];
    let mut places: HashMap<ElementId<'_>, VecDeque<usize>> = HashMap::new();
    if !middle_to.is_empty() {
        for (place, element) in middle_from.iter().enumerate() {
            places.entry(ElementId::of(element)).or_default().push_back(place);
        }
    }
    let same = middle_to.iter().enumerate().filter_map(|(place, element)| {
        Some((places.get_mut(&ElementId::of(element))?.pop_front()?, place))
    });
    let middle = longest_ascending(&same.collect::<Vec<_>>());
    let tail = (from.len() - tail..from.len()).zip(to.len() - tail..);
    (0..head)
        .map(|place| (place, place))
        .chain(middle.into_iter().map(|(from, to)| (from + head, to + head)))
        .chain(tail)
        .collect()
}

/// The part of an element by which it is found again.
#[derive(PartialEq, Eq, Hash)]
enum ElementId<'a> {
    /// The type and the id of an object.
    Entity(Option<&'a Value>, &'a Value),
    /// The element itself.
    Whole(&'a Value),
}

impl<'a> ElementId<'a> {
    fn of(element: &'a Value) -> Self {
        match element.get("id") {
            Some(id) => Self::Entity(element.get("__typename"), id),
            None => Self::Whole(element),
        }
    }
}

/// Returns the longest part of `pairs` that ascends in the first numbers. The second numbers ascend already.
fn longest_ascending(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length the pair with the least number at which a sequence of that length ends, and for each pair the one
    // before it in its sequence.
    let (mut ends, mut previous): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    for (index, (number, _)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].0 < *number);
        previous.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut longest = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some(index) = next {
        longest.push(pairs[index]);
        next = previous[index];
    }
    longest.reverse();
    longest
}

/// Prints operations as an array. `None` if the text has `bytes_max` or more.
fn print_operations(operations: &[PatchOperation], bytes_max: usize) -> Option<Bytes> {
    let mut out = vec![b'['];
    for (index, operation) in operations.iter().enumerate() {
        let (name, value) = match operation {
            PatchOperation::Add(AddOperation { value, .. }) => ("add", Some(value)),
            PatchOperation::Replace(ReplaceOperation { value, .. }) => ("replace", Some(value)),
            PatchOperation::Remove(_) => ("remove", None),
            // No difference has these.
            PatchOperation::Move(_) | PatchOperation::Copy(_) | PatchOperation::Test(_) => {
                return None;
            }
        };
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"op\":\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\",\"path\":");
        astjson::print_string(operation.path().as_str(), &mut out);
        if let Some(value) = value {
            out.extend_from_slice(b",\"value\":");
            print_value(value, &mut out);
        }
        out.push(b'}');
        if out.len() >= bytes_max {
            return None;
        }
    }
    out.push(b']');
    (out.len() < bytes_max).then(|| out.into())
}

/// Prints a value that [`read`] has made.
fn print_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Array(elements) => {
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                print_value(element, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (index, (key, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                astjson::print_string(key, out);
                out.push(b':');
                print_value(member, out);
            }
            out.push(b'}');
        }
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        // Scalars are texts.
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;

    use super::*;

    /// Returns the operations as text. The texts are padded by a common member, so that a patch is always smaller.
    fn operations(from: &str, to: &str) -> String {
        let padded =
            |text: &str| Bytes::from(format!(r#"{{"x":{text},"padding":"{}"}}"#, "p".repeat(1000)));
        let (from, to) = (padded(from), padded(to));
        let found = difference(&from, &to).expect("a smaller text");
        let found = String::from_utf8(found.to_vec()).unwrap();
        assert_eq!(applied(&from, &found), serde_json::from_slice::<Value>(&to).unwrap());
        found.replace("\"/x", "\"")
    }

    /// Returns `from` after the operations, by the crate's own code.
    fn applied(from: &Bytes, operations: &str) -> Value {
        let mut value = serde_json::from_slice(from).unwrap();
        let patch: Patch = serde_json::from_str(operations).unwrap();
        json_patch::patch(&mut value, &patch).unwrap();
        value
    }

    #[test]
    fn members_are_replaced_added_and_removed() {
        assert_eq!(operations(r#"{"a":1}"#, r#"{"a":1}"#), "[]");
        assert_eq!(
            operations(r#"{"a":1,"b":{"c":true}}"#, r#"{"a":2,"b":{"d":null}}"#),
            concat!(
                r#"[{"op":"replace","path":"/a","value":2},{"op":"add","path":"/b/d","value":null},"#,
                r#"{"op":"remove","path":"/b/c"}]"#
            )
        );
        assert_eq!(
            operations(r#"{"a/b~c":1}"#, r#"{"a/b~c":[{"é\n":"\u00e9"}]}"#),
            r#"[{"op":"replace","path":"/a~1b~0c","value":[{"é\n":"\u00e9"}]}]"#
        );
    }

    #[test]
    fn numbers_keep_their_text() {
        let number = "12345678901234567890123456789.10";
        assert_eq!(
            operations(r#"{"a":1.0}"#, &format!(r#"{{"a":{number}}}"#)),
            format!(r#"[{{"op":"replace","path":"/a","value":{number}}}]"#)
        );
    }

    #[test]
    fn elements_that_stay_in_a_list_are_not_sent_again() {
        for (from, to, expected) in [
            ("[1,2,3]", "[0,1,2,3]", r#"[{"op":"add","path":"/0","value":0}]"#),
            ("[1,2,3]", "[1,2,3,4]", r#"[{"op":"add","path":"/3","value":4}]"#),
            ("[1,2,3]", "[2,3]", r#"[{"op":"remove","path":"/0"}]"#),
            ("[1,2,3,4]", "[1,4]", r#"[{"op":"remove","path":"/1"},{"op":"remove","path":"/1"}]"#),
            (
                "[1,2,3]",
                "[0,1,2]",
                r#"[{"op":"add","path":"/0","value":0},{"op":"remove","path":"/3"}]"#,
            ),
            ("[1,2,3]", "[1,5,3]", r#"[{"op":"replace","path":"/1","value":5}]"#),
            ("[]", "[]", "[]"),
            (
                r#"[{"id":1,"n":[1]},{"id":2}]"#,
                r#"[{"id":0},{"id":1,"n":[1,2]},{"id":2}]"#,
                r#"[{"op":"add","path":"/0","value":{"id":0}},{"op":"add","path":"/1/n/1","value":2}]"#,
            ),
            (
                r#"[{"key":1,"n":1},{"key":2}]"#,
                r#"[{"key":0},{"key":1,"n":2},{"key":2}]"#,
                // Without an id the changed element is not found, so the first ones are a pair.
                concat!(
                    r#"[{"op":"add","path":"/1","value":{"key":1,"n":2}},"#,
                    r#"{"op":"replace","path":"/0/key","value":0},{"op":"remove","path":"/0/n"}]"#
                ),
            ),
            (
                r#"[{"id":1},{"id":2},{"id":3}]"#,
                r#"[{"id":3},{"id":1},{"id":2}]"#,
                r#"[{"op":"add","path":"/0","value":{"id":3}},{"op":"remove","path":"/3"}]"#,
            ),
            (
                r#"[{"__typename":"A","id":1}]"#,
                r#"[{"__typename":"B","id":1}]"#,
                r#"[{"op":"replace","path":"/0/__typename","value":"B"}]"#,
            ),
            (
                r#"{"a":[{"b":[7,8]}]}"#,
                r#"{"a":[{"b":[8]}]}"#,
                r#"[{"op":"remove","path":"/a/0/b/0"}]"#,
            ),
        ] {
            assert_eq!(operations(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn a_patch_that_is_not_smaller_is_none() {
        let (from, to) = (Bytes::from_static(b"{\"a\":1}"), Bytes::from_static(b"{\"a\":2}"));
        assert_eq!(difference(&from, &to), None);
        assert_eq!(difference(&from, &Bytes::from_static(b"{")), None);
        let long = Bytes::from(format!("{{\"a\":2,\"b\":\"{}\"}}", "b".repeat(500)));
        assert_eq!(difference(&from, &long), None);
        assert_eq!(difference(&long, &from), None);
    }

    #[test]
    fn ascending_parts_are_found_among_others() {
        let pairs = |numbers: &[usize]| numbers.iter().copied().zip(0..).collect::<Vec<_>>();
        let longest = |numbers: &[usize]| {
            longest_ascending(&pairs(numbers)).into_iter().map(|(it, _)| it).collect::<Vec<_>>()
        };
        assert_eq!(longest(&[]), [0; 0]);
        assert_eq!(longest(&[3, 2, 1]), [1]);
        assert_eq!(longest(&[0, 8, 4, 2, 6, 1, 5, 9, 3]), [0, 1, 5, 9]);
        assert_eq!(longest(&[5, 0, 1, 2, 6]), [0, 1, 2, 6]);
    }
}
