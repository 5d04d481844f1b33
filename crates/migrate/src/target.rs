//! The configuration that a migration writes: a tree of keys with comments, and its text.

use std::rc::Rc;

/// The width of comments, indentation included.
const COMMENT_WIDTH: usize = 100;

/// The key of the source that a part of the target comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) line: Option<usize>,
    pub(crate) key: Rc<str>,
}

/// A value to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Number(String),
    /// A text. References to variables are already in the form of Starling.
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn number(number: impl ToString) -> Self {
        Self::Number(number.to_string())
    }

    /// Returns a single value as YAML writes it.
    pub(crate) fn scalar(&self) -> Option<String> {
        match self {
            Self::Bool(value) => Some(value.to_string()),
            Self::Number(number) => Some(number.clone()),
            Self::Text(text) => Some(yaml_text(text)),
            Self::List(_) | Self::Map(_) => None,
        }
    }

    /// Makes a mapping of the members that are present.
    pub(crate) fn map<const N: usize>(members: [(&str, Option<Self>); N]) -> Self {
        let present = members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Self::Map(present.collect())
    }

    /// Makes a mapping with one member.
    pub(crate) fn keyed(key: &str, value: Self) -> Self {
        Self::Map(vec![(key.to_owned(), value)])
    }

    pub(crate) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(|text| Self::Text(text.into())).collect())
    }
}

/// A part of the tree. The entries of a list have no keys.
#[derive(Debug, Clone)]
struct Entry {
    key: String,
    node: Node,
    comments: Vec<String>,
    source: Source,
}

#[derive(Debug, Clone)]
enum Node {
    /// A value as YAML writes it.
    Scalar(String),
    List(Vec<Entry>),
    Map(Vec<Entry>),
}

impl Entry {
    fn of(key: &str, value: Value, source: &Source) -> Self {
        let node = match value {
            Value::Bool(_) | Value::Number(_) | Value::Text(_) => {
                Node::Scalar(value.scalar().unwrap_or_default())
            }
            Value::List(items) => {
                Node::List(items.into_iter().map(|item| Self::of("", item, source)).collect())
            }
            Value::Map(members) => Node::Map(
                members.into_iter().map(|(key, value)| Self::of(&key, value, source)).collect(),
            ),
        };
        Self { key: key.to_owned(), node, comments: Vec::new(), source: source.clone() }
    }

    fn children(&mut self) -> Option<&mut Vec<Self>> {
        match &mut self.node {
            Node::Scalar(_) => None,
            Node::List(entries) | Node::Map(entries) => Some(entries),
        }
    }
}

/// The whole configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    entries: Vec<Entry>,
}

/// The indices of a part, from the root.
pub(crate) type Place = Vec<usize>;

/// The text of a target, with the part of each line.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    places: Vec<Option<Place>>,
}

impl Rendered {
    /// Returns the part on a line, counted from 1.
    pub(crate) fn place_of(&self, line: usize) -> Option<&Place> {
        self.places.get(line.checked_sub(1)?)?.as_ref()
    }

    fn push(&mut self, line: &str, place: Option<&[usize]>) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
        self.places.push(place.map(<[usize]>::to_vec));
    }
}

/// Replaces values with references to variables, by the path of their key.
pub(crate) type Sampler<'a> = &'a dyn Fn(&[String]) -> String;

impl Target {
    /// Sets a key. Returns false if the key is set already, or is below one with a single value.
    pub(crate) fn set(
        &mut self,
        path: &[String],
        value: Value,
        source: &Source,
        comment: Option<&str>,
    ) -> bool {
        let Some((last, sections)) = path.split_last() else { return false };
        let Some(entries) = self.section(sections, source) else { return false };
        if entries.iter().any(|entry| entry.key == *last) {
            return false;
        }
        let mut entry = Entry::of(last, value, source);
        entry.comments.extend(comment.map(str::to_owned));
        entries.push(entry);
        true
    }

    /// Adds an element to a list. Returns false if the key has a value that is no list.
    pub(crate) fn push(
        &mut self,
        path: &[String],
        value: Value,
        source: &Source,
        comment: Option<&str>,
    ) -> bool {
        let Some((last, sections)) = path.split_last() else { return false };
        let Some(entries) = self.section(sections, source) else { return false };
        let at = entries.iter().position(|entry| entry.key == *last).unwrap_or_else(|| {
            entries.push(Entry::of(last, Value::List(Vec::new()), source));
            entries.len() - 1
        });
        let Node::List(items) = &mut entries[at].node else { return false };
        let mut item = Entry::of("", value, source);
        item.comments.extend(comment.map(str::to_owned));
        items.push(item);
        true
    }

    /// True if a key is set.
    pub(crate) fn has(&self, path: &[&str]) -> bool {
        let mut entries = &self.entries;
        for (index, key) in path.iter().enumerate() {
            let Some(entry) = entries.iter().find(|entry| entry.key == *key) else { return false };
            match &entry.node {
                _ if index + 1 == path.len() => return true,
                Node::Map(below) => entries = below,
                Node::Scalar(_) | Node::List(_) => return false,
            }
        }
        false
    }

    /// Returns the source of a part.
    pub(crate) fn source_of(&self, place: &[usize]) -> Option<&Source> {
        self.entry(place).map(|entry| &entry.source)
    }

    /// True if a single value comes from this source.
    pub(crate) fn has_value_from(&self, source: &Source) -> bool {
        fn has(entries: &[Entry], source: &Source) -> bool {
            entries.iter().any(|entry| match &entry.node {
                Node::Scalar(_) => entry.source == *source,
                Node::List(below) | Node::Map(below) => has(below, source),
            })
        }
        has(&self.entries, source)
    }

    /// Returns the path of a part: `headers.all.request[0].insert`.
    pub(crate) fn path_of(&self, place: &[usize]) -> String {
        let mut path = String::new();
        let mut entries = &self.entries;
        for index in place {
            let Some(entry) = entries.get(*index) else { break };
            match (entry.key.is_empty(), path.is_empty()) {
                (true, _) => path.push_str(&format!("[{index}]")),
                (false, true) => path.push_str(&entry.key),
                (false, false) => path.push_str(&format!(".{}", entry.key)),
            }
            match &entry.node {
                Node::Scalar(_) => break,
                Node::List(below) | Node::Map(below) => entries = below,
            }
        }
        path
    }

    /// Returns the single values at and below a part: the path, the value as YAML writes it, and the source of each.
    pub(crate) fn values_below(&self, place: &[usize]) -> Vec<(String, String, Source)> {
        let mut values = Vec::new();
        let Some(entry) = self.entry(place) else { return values };
        match &entry.node {
            Node::Scalar(text) => {
                values.push((self.path_of(place), text.clone(), entry.source.clone()));
            }
            Node::List(below) | Node::Map(below) => {
                for index in 0..below.len() {
                    values.extend(self.values_below(&[place, &[index]].concat()));
                }
            }
        }
        values
    }

    /// Removes a key with everything below it, and the sections that are empty without it.
    pub(crate) fn remove_key(&mut self, path: &[&str]) {
        let mut place = Place::new();
        let mut entries = &self.entries;
        for key in path {
            let Some(at) = entries.iter().position(|entry| entry.key == *key) else { return };
            place.push(at);
            match &entries[at].node {
                Node::Scalar(_) => break,
                Node::List(below) | Node::Map(below) => entries = below,
            }
        }
        if place.len() == path.len() {
            self.remove(&place);
        }
    }

    /// Removes a part, and the sections that are empty without it.
    pub(crate) fn remove(&mut self, place: &[usize]) {
        remove(&mut self.entries, place);
    }

    /// Returns the number of sections at the top.
    pub(crate) fn sections(&self) -> usize {
        self.entries.len()
    }

    /// Sorts the sections at the top in the order of `keys`.
    pub(crate) fn sort(&mut self, keys: &[String]) {
        self.entries.sort_by_key(|entry| {
            keys.iter().position(|key| *key == entry.key).unwrap_or(keys.len())
        });
    }

    /// Prints the configuration after `head`, the lines of a comment. With a sampler, values with references are
    /// replaced, and every part stays on its line.
    pub(crate) fn render(&self, head: &[String], sampler: Option<Sampler<'_>>) -> Rendered {
        let mut rendered = Rendered::default();
        for line in head {
            rendered.push(&format!("# {line}"), None);
        }
        let mut printer = Printer { rendered, sampler, keys: Vec::new() };
        for (index, entry) in self.entries.iter().enumerate() {
            if index > 0 || !head.is_empty() {
                printer.rendered.push("", None);
            }
            printer.print(entry, "", "", &mut vec![index]);
        }
        printer.rendered
    }

    fn entry(&self, place: &[usize]) -> Option<&Entry> {
        let (last, sections) = place.split_last()?;
        let mut entries = &self.entries;
        for index in sections {
            match &entries.get(*index)?.node {
                Node::Scalar(_) => return None,
                Node::List(below) | Node::Map(below) => entries = below,
            }
        }
        entries.get(*last)
    }

    fn section(&mut self, path: &[String], source: &Source) -> Option<&mut Vec<Entry>> {
        let mut entries = &mut self.entries;
        for key in path {
            let at = entries.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
                entries.push(Entry::of(key, Value::Map(Vec::new()), source));
                entries.len() - 1
            });
            match &mut entries[at].node {
                Node::Map(below) => entries = below,
                Node::Scalar(_) | Node::List(_) => return None,
            }
        }
        Some(entries)
    }
}

fn remove(entries: &mut Vec<Entry>, place: &[usize]) {
    let Some((first, rest)) = place.split_first() else { return };
    let Some(entry) = entries.get_mut(*first) else { return };
    let is_empty = match entry.children() {
        Some(below) if !rest.is_empty() => {
            remove(below, rest);
            below.is_empty()
        }
        _ => true,
    };
    if is_empty {
        entries.remove(*first);
    }
}

struct Printer<'a> {
    rendered: Rendered,
    sampler: Option<Sampler<'a>>,
    keys: Vec<String>,
}

impl Printer<'_> {
    /// Prints one part. `first` precedes its first line, `indent` the others: the first member of a list's element is
    /// on the line of its hyphen.
    fn print(&mut self, entry: &Entry, first: &str, indent: &str, place: &mut Vec<usize>) {
        let comment_indent: String = first.chars().map(|_| ' ').collect();
        let comment_indent = comment_indent.strip_suffix("  ").filter(|_| first.ends_with("- "));
        let comment_indent = comment_indent.unwrap_or(indent).to_owned();
        for line in entry.comments.iter().flat_map(|it| wrap(it, comment_indent.len())) {
            self.rendered.push(&format!("{comment_indent}# {line}"), None);
        }
        let is_item = entry.key.is_empty();
        if !is_item {
            self.keys.push(entry.key.clone());
        }
        let name = match is_item {
            true => first.to_owned(),
            false => format!("{first}{}:", yaml_text(&entry.key)),
        };
        match &entry.node {
            Node::Scalar(text) => {
                let sample = self.sampler.filter(|_| super::variables::has_reference(text));
                let text = sample.map_or_else(|| text.clone(), |sampler| sampler(&self.keys));
                let space = if is_item { "" } else { " " };
                self.rendered.push(&format!("{name}{space}{text}"), Some(place));
            }
            Node::List(below) | Node::Map(below) if below.is_empty() => {
                let empty = if matches!(entry.node, Node::List(_)) { "[]" } else { "{}" };
                let space = if is_item { "" } else { " " };
                self.rendered.push(&format!("{name}{space}{empty}"), Some(place));
            }
            Node::List(below) => {
                // A list directly in a list does not occur in configurations.
                self.rendered.push(&name, Some(place));
                let deeper = format!("{indent}  ");
                for (index, item) in below.iter().enumerate() {
                    place.push(index);
                    self.print(item, &format!("{deeper}- "), &format!("{deeper}  "), place);
                    place.pop();
                }
            }
            Node::Map(below) if is_item => {
                // Comments of members are printed before the element, so that the hyphen stays with the first member.
                for line in below.iter().flat_map(|it| &it.comments) {
                    for line in wrap(line, comment_indent.len()) {
                        self.rendered.push(&format!("{comment_indent}# {line}"), None);
                    }
                }
                for (index, member) in below.iter().enumerate() {
                    let first = if index == 0 { first } else { indent };
                    let member = Entry { comments: Vec::new(), ..member.clone() };
                    place.push(index);
                    self.print(&member, first, indent, place);
                    place.pop();
                }
            }
            Node::Map(below) => {
                self.rendered.push(&name, Some(place));
                let deeper = format!("{indent}  ");
                for (index, member) in below.iter().enumerate() {
                    place.push(index);
                    self.print(member, &deeper, &deeper, place);
                    place.pop();
                }
            }
        }
        if !is_item {
            self.keys.pop();
        }
    }
}

/// Breaks a text into lines of comments with this indentation.
pub(crate) fn wrap(text: &str, indent: usize) -> Vec<String> {
    let width = COMMENT_WIDTH.saturating_sub(indent + 2).max(40);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Writes a text as YAML: plain if it is certainly read as this text, and in double quotes otherwise.
fn yaml_text(text: &str) -> String {
    let is_word = |text: &str| {
        let reserved = ["true", "false", "null", "yes", "no", "on", "off"];
        let edges = |c: char| c.is_ascii_alphanumeric() || c == '/' || c == '_';
        let inner = |c: char| c.is_ascii_alphanumeric() || "_./:@+=-".contains(c);
        text.starts_with(edges)
            && text.ends_with(edges)
            && text.chars().all(inner)
            && !reserved.contains(&&*text.to_ascii_lowercase())
    };
    // References have braces, which are plain outside of flow collections.
    let without_references =
        text.split("${").enumerate().try_fold(String::new(), |kept, (index, part)| {
            if index == 0 {
                return Some(kept + part);
            }
            let (name, rest) = part.split_once('}')?;
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_')
                .then(|| format!("{kept}V{rest}"))
        });
    match without_references {
        Some(plain) if is_word(&plain) => text.to_owned(),
        // JSON is a subset of YAML.
        _ => serde_json::Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source { line: Some(1), key: "key".into() }
    }

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    fn sample() -> Target {
        let mut target = Target::default();
        let source = source();
        target.set(&path("limits.depth"), Value::number(5), &source, Some("a note"));
        target.set(&path("listen"), Value::text("${HOST}:4000"), &source, None);
        let rule = Value::keyed(
            "insert",
            Value::map([("name", Some(Value::text("x-a"))), ("value", Some(Value::text("b: c")))]),
        );
        target.push(&path("headers.all.request"), rule, &source, Some("another"));
        target.push(&path("cors.origins"), Value::text("*"), &source, None);
        target
    }

    #[test]
    fn the_text_is_yaml_with_the_part_of_each_line() {
        let rendered = sample().render(&["head".to_owned()], None);
        let expected = concat!(
            "# head\n\nlimits:\n  # a note\n  depth: 5\n\nlisten: ${HOST}:4000\n\n",
            "headers:\n  all:\n    request:\n      # another\n      - insert:\n          name: x-a\n",
            "          value: \"b: c\"\n\ncors:\n  origins:\n    - \"*\"\n",
        );
        assert_eq!(rendered.text, expected);
        assert_eq!(rendered.place_of(5), Some(&vec![0, 0]));
        assert_eq!(rendered.place_of(15), Some(&vec![2, 0, 0, 0, 0, 1]));
        assert_eq!(rendered.place_of(1), None);
        let target = sample();
        assert_eq!(target.path_of(&[2, 0, 0, 0, 0, 1]), "headers.all.request[0].insert.value");
        assert!(config::parse_tree(&rendered.text, "starling.yaml").is_ok());
    }

    #[test]
    fn values_with_references_are_replaced_on_the_same_lines() {
        let target = sample();
        let sampled = target.render(&[], Some(&|keys: &[String]| format!("<{}>", keys.join("."))));
        assert!(sampled.text.contains("listen: <listen>\n"));
        assert_eq!(sampled.text.lines().count(), target.render(&[], None).text.lines().count());
    }

    #[test]
    fn a_removed_part_takes_its_empty_sections_along() {
        let mut target = sample();
        target.remove(&[2, 0, 0, 0, 0, 1]);
        assert!(!target.render(&[], None).text.contains("value"));
        target.remove(&[2, 0, 0, 0]);
        target.remove(&[0, 0]);
        assert_eq!(
            target.render(&[], None).text,
            "listen: ${HOST}:4000\n\ncors:\n  origins:\n    - \"*\"\n"
        );
    }

    #[test]
    fn a_key_is_set_once_and_lists_grow() {
        let mut target = sample();
        assert!(!target.set(&path("limits.depth"), Value::number(6), &source(), None));
        assert!(!target.set(&path("listen.address"), Value::number(6), &source(), None));
        assert!(target.push(&path("cors.origins"), Value::text("https://a"), &source(), None));
        assert!(target.has(&["cors", "origins"]) && !target.has(&["cors", "policies"]));
    }

    #[test]
    fn doubtful_texts_are_quoted() {
        let cases = [
            ("a", "a"),
            ("127.0.0.1:4000", "127.0.0.1:4000"),
            ("https://a/${B}/c", "https://a/${B}/c"),
            ("${A:-b c}", "\"${A:-b c}\""),
            ("true", "\"true\""),
            ("~", "\"~\""),
            ("a: b", "\"a: b\""),
            ("-a", "\"-a\""),
            ("", "\"\""),
            ("a\nb", "\"a\\nb\""),
        ];
        for (text, written) in cases {
            assert_eq!(yaml_text(text), written);
        }
    }
}
