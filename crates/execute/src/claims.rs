//! The claims of a verified token. Verification, and the choice of the claims to read, are outside
//! of this module.

use std::fmt;
use std::sync::Arc;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;

/// Maximum nesting of claims.
const DEPTH_MAX: u32 = 32;

/// The claims of a token: a JSON object's text. Kept as text, since it lives as long as a
/// connection and is read when operations begin.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Claims {
    text: Bytes,
    /// The paths of the claims that were kept, see [`Claims::keep`]; `None` if all were.
    kept: Option<Arc<[ClaimPath]>>,
}

/// The path of a claim: a name, and the names of members below it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClaimPath(Box<[Box<str>]>);

/// The values of the claims that the configuration reads, and no others: they may be part of an
/// identity. Their order is that of the paths, so equal claims are equal values.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ClaimValues(Box<[(ClaimPath, Option<Box<str>>)]>);

/// A value that can be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimScalar {
    /// A string.
    Text(Box<str>),
    /// A number, as it is written.
    Number(Box<str>),
    /// `true` or `false`.
    Boolean(bool),
}

impl Claims {
    /// Creates claims. `None` if `text` is no JSON object, or is nested too deeply.
    pub fn new(text: Bytes) -> Option<Self> {
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        let root = document.parse(text.clone()).ok()?;
        (document.kind(root) == Kind::Object).then_some(Self { text, kept: None })
    }

    /// Returns the claims at `paths` and no others: clients that differ in other claims have equal ones then. The paths
    /// must be sorted. Claims that were selected so before stay as they are, because the others are gone.
    #[must_use]
    pub fn keep(&self, paths: &Arc<[ClaimPath]>) -> Self {
        if self.kept.is_some() {
            return self.clone();
        }
        debug_assert!(paths.is_sorted(), "members of one object are neighbours");
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        let names: Vec<&[Box<str>]> = paths.iter().map(|path| &*path.0).collect();
        let mut text = String::new();
        match document.parse(self.text.clone()) {
            Ok(root) => append_members(&document, root, &names, &mut text),
            // It was parsed before.
            Err(_) => text.push_str("{}"),
        }
        Self { text: text.into(), kept: Some(Arc::clone(paths)) }
    }

    /// True if these claims have the values at all of `paths`, as far as the token has them.
    pub fn has_kept(&self, paths: &[ClaimPath]) -> bool {
        let Some(kept) = &self.kept else { return true };
        paths.iter().all(|path| kept.iter().any(|it| path.0.starts_with(&it.0)))
    }

    /// Returns the claims at `paths`. Without claims none of them has a value.
    pub fn select<'a>(
        claims: Option<&Self>,
        paths: impl IntoIterator<Item = &'a ClaimPath>,
    ) -> ClaimValues {
        let mut paths: Vec<_> = paths.into_iter().collect();
        paths.sort_unstable();
        paths.dedup();
        if paths.is_empty() {
            return ClaimValues::default();
        }
        debug_assert!(
            claims
                .is_none_or(|it| paths.iter().all(|path| it.has_kept(std::slice::from_ref(*path)))),
            "a claim is read that the connection has not kept: see `ServingGraph::read_claims`"
        );
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        let root = claims.and_then(|claims| document.parse(claims.text.clone()).ok());
        let value = |path: &ClaimPath| {
            let mut node = root?;
            for name in &path.0 {
                if document.kind(node) != Kind::Object {
                    return None;
                }
                node = document.get(node, name)?;
            }
            (!document.is_null(node)).then(|| document.to_string(node).into())
        };
        ClaimValues(paths.into_iter().map(|path| (path.clone(), value(path))).collect())
    }

    /// The size in memory.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// Appends an object with the members of `node` at the paths `names`, which are sorted. Members that are null count as
/// absent.
fn append_members(document: &Document, node: NodeId, names: &[&[Box<str>]], out: &mut String) {
    out.push('{');
    let begin = out.len();
    for group in names.chunk_by(|one, other| one.first() == other.first()) {
        let Some(name) = group.first().and_then(|it| it.first()) else { continue };
        let Some(member) = document.get(node, name).filter(|it| !document.is_null(*it)) else {
            continue;
        };
        let is_whole = group.iter().any(|it| it.len() == 1);
        if !is_whole && document.kind(member) != Kind::Object {
            continue;
        }
        if out.len() > begin {
            out.push(',');
        }
        append_name(name, out);
        if is_whole {
            out.push_str(&document.to_string(member));
        } else {
            let below: Vec<&[Box<str>]> = group.iter().map(|it| &it[1..]).collect();
            append_members(document, member, &below, out);
        }
    }
    out.push('}');
}

/// Appends the name of a member and the colon behind it.
fn append_name(name: &str, out: &mut String) {
    out.push('"');
    for letter in name.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => out.push(letter),
        }
    }
    out.push_str("\":");
}

/// Prints no claims, which are secret.
impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claims")
    }
}

impl ClaimPath {
    /// Creates the path of a claim and members below it. `None` if there is no name, or an empty
    /// one.
    pub fn new(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Option<Self> {
        let names: Box<[Box<str>]> = names.into_iter().map(Into::into).collect();
        (!names.is_empty() && names.iter().all(|name| !name.is_empty())).then_some(Self(names))
    }

    /// Parses names with points between them, such as `realm_access.roles`. A text with `://` is
    /// one name: claims with globally unique names are named by URLs.
    pub fn parse(text: &str) -> Option<Self> {
        match text.contains("://") {
            true => Self::new([text]),
            false => Self::new(text.split('.')),
        }
    }
}

impl fmt::Display for ClaimPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

impl ClaimValues {
    /// The JSON text of a claim; `None` if there is none, or it is null.
    pub fn json(&self, path: &ClaimPath) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(path)).ok()?;
        self.0[at].1.as_deref()
    }

    /// The scalars of a claim: itself, or the elements of a list. `None` if there is no such claim,
    /// or it is an object, or a list with other values.
    pub fn scalars(&self, path: &ClaimPath) -> Option<Vec<ClaimScalar>> {
        let mut document = Document::with_depth_limit(DEPTH_MAX);
        let root = document.parse(Bytes::copy_from_slice(self.json(path)?.as_bytes())).ok()?;
        let scalar = |node| match document.kind(node) {
            Kind::String => document.as_str(node).map(|it| ClaimScalar::Text(it.into())),
            Kind::Number => Some(ClaimScalar::Number(document.raw(node).into())),
            Kind::Bool => Some(ClaimScalar::Boolean(document.raw(node) == "true")),
            Kind::Null | Kind::Array | Kind::Object => None,
        };
        match document.kind(root) {
            Kind::Array => document.elements(root).map(scalar).collect(),
            _ => scalar(root).map(|it| vec![it]),
        }
    }

    /// The claim as one text: a string as it is, other values as JSON.
    pub fn text(&self, path: &ClaimPath) -> Option<Box<str>> {
        let json = self.json(path)?;
        match self.scalars(path).as_deref() {
            Some([ClaimScalar::Text(text)]) if !json.starts_with('[') => Some(text.clone()),
            _ => Some(json.into()),
        }
    }

    /// True if the claim at `path` was selected, whether it has a value or not.
    pub fn knows(&self, path: &ClaimPath) -> bool {
        self.0.binary_search_by(|(known, _)| known.cmp(path)).is_ok()
    }

    /// Returns the claims at `paths` among these.
    #[must_use]
    pub fn only(&self, paths: &[ClaimPath]) -> Self {
        let values = self.0.iter().filter(|(path, _)| paths.contains(path));
        Self(values.cloned().collect())
    }

    /// The paths of the selected claims.
    pub fn paths(&self) -> impl Iterator<Item = &ClaimPath> {
        self.0.iter().map(|(path, _)| path)
    }

    /// True if no claims were selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends all claims as one canonical string of bytes. Each text is preceded by its length, so
    /// that the string is unambiguous.
    pub fn append_canonical(&self, out: &mut Vec<u8>) {
        let mut text = |text: &str| {
            out.extend_from_slice(&(text.len() as u32).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        for (path, value) in &self.0 {
            for name in &path.0 {
                text(name);
            }
            // No name is empty, so this ends the path; a value is some JSON, so it is not empty
            // either.
            text("");
            text(value.as_deref().unwrap_or_default());
        }
    }
}

/// Prints the paths of the claims, without their values.
impl fmt::Debug for ClaimValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.paths().map(ToString::to_string)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ClaimPath {
        ClaimPath::parse(text).expect("names")
    }

    fn claims() -> Claims {
        let text = r#"{"sub":"u1","level":7,"a":{"roles":["x","y"]},"gone":null,"https://e.com/t":"ü \"q\"","mixed":[1,{}]}"#;
        Claims::new(text.into()).expect("an object")
    }

    #[test]
    fn only_selected_claims_are_taken() {
        let paths = [path("sub"), path("a.roles"), path("gone"), path("none"), path("sub")];
        let values = Claims::select(Some(&claims()), &paths);
        assert_eq!(values.paths().count(), 4);
        assert_eq!(values.json(&path("sub")), Some("\"u1\""));
        assert_eq!(values.json(&path("level")), None, "it was not selected");
        assert!(!values.knows(&path("level")) && values.knows(&path("none")));
        assert_eq!(values.json(&path("gone")), None);
        let text = |text: &str| ClaimScalar::Text(text.into());
        assert_eq!(values.scalars(&path("a.roles")), Some(vec![text("x"), text("y")]));
        assert_eq!(values.text(&path("a.roles")).as_deref(), Some(r#"["x","y"]"#));
        assert_eq!(values.text(&path("sub")).as_deref(), Some("u1"));
        let debug = format!("{values:?} {:?}", claims());
        assert!(!debug.contains("u1") && debug.contains("sub"), "{debug}");
    }

    #[test]
    fn only_kept_claims_are_left_and_equal_ones_are_equal() {
        let keep = |text: &str, paths: &[&str]| {
            let mut paths: Vec<_> = paths.iter().map(|it| path(it)).collect();
            paths.sort_unstable();
            Claims::new(text.to_owned().into()).expect("an object").keep(&paths.into())
        };
        let text = r#"{"sub":"u1","scope":"a b","a":{"roles":["x"],"id":7,"deep":{"b":1,"c":2}},"gone":null,"q\"":1}"#;
        for (paths, expected) in [
            (&["scope"][..], r#"{"scope":"a b"}"#),
            (&[], "{}"),
            (&["gone", "none", "scope.a", "a.id.b"], r#"{"a":{}}"#),
            (&["a.roles", "a.deep.c", "q\""], r#"{"a":{"deep":{"c":2},"roles":["x"]},"q\"":1}"#),
            (&["a.id", "a"], r#"{"a":{"roles":["x"],"id":7,"deep":{"b":1,"c":2}}}"#),
        ] {
            assert_eq!(keep(text, paths).text, expected, "{paths:?}");
        }
        assert_eq!(keep(text, &["scope"]), keep(r#"{"sub":"u2","scope":"a b"}"#, &["scope"]));
        assert_ne!(keep(text, &["scope"]), keep(r#"{"scope":"a"}"#, &["scope"]));

        let kept = keep(text, &["a.deep", "scope"]);
        assert!(kept.has_kept(&[path("a.deep.b"), path("scope")]) && kept.has_kept(&[]));
        assert!(!kept.has_kept(&[path("a")]) && !kept.has_kept(&[path("scope"), path("sub")]));
        let values = Claims::select(Some(&kept), &[path("a.deep.b"), path("scope")]);
        assert_eq!(values.json(&path("a.deep.b")), Some("1"));
        assert_eq!(values.text(&path("scope")).as_deref(), Some("a b"));
        assert_eq!(kept.keep(&[path("sub")].into()), kept, "the others are gone");
        assert!(claims().has_kept(&[path("anything")]));
    }

    #[test]
    fn a_name_may_have_points_if_it_is_written_so() {
        let whole = path("https://e.com/t");
        let values = Claims::select(Some(&claims()), [&whole, &path("mixed"), &path("level")]);
        assert_eq!(values.text(&whole).as_deref(), Some("ü \"q\""));
        assert_eq!(values.scalars(&path("mixed")), None, "it cannot be compared");
        assert_eq!(values.scalars(&path("level")), Some(vec![ClaimScalar::Number("7".into())]));
        assert_eq!(ClaimPath::parse("a..b"), None);
        assert_eq!(ClaimPath::new([""; 0]), None);
    }

    #[test]
    fn different_claims_never_have_the_same_canonical_text() {
        let canonical = |text: &str, paths: &[&str]| {
            let claims = Claims::new(text.to_owned().into());
            let paths: Vec<_> = paths.iter().map(|it| path(it)).collect();
            let mut out = Vec::new();
            Claims::select(claims.as_ref(), &paths).append_canonical(&mut out);
            out
        };
        let all = [
            canonical("[]", &["a"]),
            canonical(r#"{"a":"1"}"#, &["a"]),
            canonical(r#"{"a":1}"#, &["a"]),
            canonical(r#"{"a":{"b":1}}"#, &["a.b"]),
            canonical(r#"{"a":"1","b":"2"}"#, &["a", "b"]),
            canonical(r#"{"a":"12","b":""}"#, &["a", "b"]),
            canonical("{}", &[]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
        assert_eq!(canonical(r#"{"b":"2","a":"1"}"#, &["b", "a"]), all[4]);
    }
}
