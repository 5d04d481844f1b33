//! The part `map` of a request with files: the places in the variables that each file takes.

use astjson::{Document, Kind};
use bytes::Bytes;

/// The maximum number of places of all files, more than any form has.
const PATHS_MAX: usize = 100;

/// A file and its places.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FilePaths {
    /// The name of the part with the file.
    pub(crate) name: Box<str>,
    /// The places, such as `variables.files.0`.
    pub(crate) paths: Vec<Box<str>>,
}

/// Parses the map: an object with a list of places for each file.
///
/// # Errors
/// The reason in words, for the client.
pub(crate) fn parse(text: &Bytes) -> Result<Vec<FilePaths>, String> {
    let expected = || {
        "`map` must be a JSON object with a list of places for each file: {\"0\":[\"variables.file\"]}".to_owned()
    };
    let mut lists = Vec::new();
    let read = astjson::outline_members(text, |name, list| lists.push((name.into_owned(), list)));
    if !matches!(read, Ok(Kind::Object)) {
        return Err(expected());
    }
    let (mut files, mut count) = (Vec::with_capacity(lists.len()), 0);
    for (name, list) in lists {
        if files.iter().any(|file: &FilePaths| *file.name == *name) {
            return Err(format!("`map` has the file `{name}` twice"));
        }
        let mut document = Document::new();
        let root = document.parse(list.clone()).map_err(|_| expected())?;
        if list.first() != Some(&b'[') {
            return Err(expected());
        }
        let paths = document.elements(root).map(|path| document.as_str(path).map(Into::into));
        let paths: Option<Vec<Box<str>>> = paths.collect();
        let paths = paths.filter(|paths| !paths.is_empty()).ok_or_else(expected)?;
        count += paths.len();
        if count > PATHS_MAX {
            return Err(format!("`map` has more than {PATHS_MAX} places"));
        }
        files.push(FilePaths { name: name.into(), paths });
    }
    Ok(files)
}

/// Returns the variables with a marker in place of the null at each place of the map.
///
/// # Errors
/// The reason in words, for the client: a place does not exist, or is not null.
pub(crate) fn put_markers(
    variables: &Bytes,
    map: &[FilePaths],
    marker: impl Fn(usize) -> String,
) -> Result<Bytes, String> {
    let mut places = Vec::new();
    for (file, FilePaths { paths, .. }) in map.iter().enumerate() {
        for path in paths {
            let place = find(variables, path).ok_or_else(|| {
                format!(
                    "`map` has the place `{path}`, where `variables` of `operations` has no null"
                )
            })?;
            places.push((place, file));
        }
    }
    places.sort_unstable();
    if places.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err("`map` has a place twice".to_owned());
    }
    let mut text = Vec::with_capacity(variables.len() + 64 * places.len());
    let mut at = 0;
    for (place, file) in places {
        text.extend_from_slice(&variables[at..place]);
        text.extend_from_slice(marker(file).as_bytes());
        at = place + NULL.len();
    }
    text.extend_from_slice(&variables[at..]);
    Ok(text.into())
}

const NULL: &[u8] = b"null";

/// Returns the offset of the null at a place.
fn find(variables: &Bytes, path: &str) -> Option<usize> {
    let mut value = variables.clone();
    for step in path.strip_prefix("variables.")?.split('.') {
        value = child(&value, step)?;
    }
    // Values are slices of the text that they are in.
    let offset = (value.as_ptr() as usize).checked_sub(variables.as_ptr() as usize)?;
    (*value == *NULL && variables.get(offset..offset + NULL.len()) == Some(NULL)).then_some(offset)
}

/// Returns the member or element that a step of a place names.
fn child(value: &Bytes, step: &str) -> Option<Bytes> {
    let mut found = None;
    match value.first()? {
        b'{' => {
            // Of several members with the same key, the last counts.
            let read = astjson::outline_members(value, |name, member| {
                if name == step {
                    found = Some(member);
                }
            });
            read.ok()?;
        }
        b'[' => {
            let wanted: usize = step.parse().ok()?;
            let mut index = 0;
            let read = astjson::outline_elements(value, |element| {
                if index == wanted {
                    found = Some(element);
                }
                index += 1;
            });
            read.ok()?;
        }
        _ => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(variables: &'static str, map: &'static str) -> Result<String, String> {
        let map = parse(&Bytes::from_static(map.as_bytes()))?;
        let marker = |file| format!("\"F{file}\"");
        let text = put_markers(&Bytes::from_static(variables.as_bytes()), &map, marker)?;
        Ok(String::from_utf8(text.into()).unwrap())
    }

    #[test]
    fn markers_take_the_places_of_the_map() {
        let variables = r#"{ "a": null, "n": null, "list": [null, 7, null], "in": {"b": null} }"#;
        let map = r#"{"x":["variables.in.b","variables.a"],"y":["variables.list.2"]}"#;
        assert_eq!(
            put(variables, map).as_deref(),
            Ok(r#"{ "a": "F0", "n": null, "list": [null, 7, "F1"], "in": {"b": "F0"} }"#)
        );
        assert_eq!(put(variables, "{}").as_deref(), Ok(variables));
    }

    #[test]
    fn a_map_that_points_nowhere_is_refused() {
        for (map, expected) in [
            (r#"{"x":["variables.b"]}"#, "`variables.b`"),
            (r#"{"x":["variables.list.9"]}"#, "`variables.list.9`"),
            (r#"{"x":["variables.list.-1"]}"#, "`variables.list.-1`"),
            (r#"{"x":["variables.list"]}"#, "`variables.list`"),
            (r#"{"x":["variables"]}"#, "`variables`"),
            (r#"{"x":["query"]}"#, "`query`"),
            (r#"{"x":["0.variables.a"]}"#, "`0.variables.a`"),
            (r#"{"x":["variables.a"],"y":["variables.a"]}"#, "a place twice"),
            (r#"{"x":["variables.a"],"x":["variables.list.0"]}"#, "the file `x` twice"),
            (r#"{"x":[]}"#, "must be a JSON object"),
            (r#"{"x":"variables.a"}"#, "must be a JSON object"),
            (r#"{"x":[7]}"#, "must be a JSON object"),
            ("[]", "must be a JSON object"),
            ("{", "must be a JSON object"),
        ] {
            let error = put(r#"{"a":null,"list":[null]}"#, map).unwrap_err();
            assert!(error.contains(expected), "{map}: {error}");
        }
        assert!(put("", r#"{"x":["variables.a"]}"#).is_err());
    }

    #[test]
    fn the_number_of_places_is_bounded() {
        let paths: Vec<_> =
            (0..=PATHS_MAX).map(|index| format!("\"variables.a.{index}\"")).collect();
        let map = Bytes::from(format!(r#"{{"x":[{}]}}"#, paths.join(",")));
        assert!(parse(&map).unwrap_err().contains("more than 100 places"));
    }
}
