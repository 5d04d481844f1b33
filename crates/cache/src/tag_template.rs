//! Templates of tags: `@cacheTag(format: "user-{$key.id}")` on entities, `{$args.x}` on root fields.
//!
//! A template is compiled when the graph is loaded, so that a mistake is reported with its place, and rendered for each
//! entity.

use std::ops::Range;

/// The maximum size of a rendered tag.
pub const TAG_BYTES_MAX: usize = 1024;

/// Where a template is used, which decides the values that it may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TemplateScope {
    /// On an entity type: `{$key.…}`.
    Entity,
    /// On a root field: `{$args.…}`.
    RootField,
}

impl TemplateScope {
    fn root(self) -> &'static str {
        match self {
            Self::Entity => "$key",
            Self::RootField => "$args",
        }
    }
}

/// A compiled template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagTemplate {
    segments: Vec<Segment>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Segment {
    Text(Box<str>),
    /// The names after `$key` or `$args`.
    Value(Box<[Box<str>]>),
}

/// A mistake in a template.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// The mistake, and the right form.
    pub message: String,
    /// The bytes of the template that it is about.
    pub range: Range<usize>,
}

/// The values of one entity or root field.
pub trait TagValues {
    /// Appends the value at a path below `$key` or `$args` to `out`: a string without quotes and escapes, any other
    /// scalar as in JSON. Returns false if the value is missing, null, a list or an object; `out` is discarded then.
    fn write_value(&self, path: &[Box<str>], out: &mut String) -> bool;
}

/// The reason why a template has no tag for an entity. The entity must not be stored then: an invalidation of the tag
/// would not reach it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RenderError {
    /// A value is missing.
    #[error("there is no scalar at `{0}`")]
    NoValue(String),
    /// The tag is too long.
    #[error("the tag is longer than {TAG_BYTES_MAX} bytes")]
    TooLong,
}

impl TagTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn compile(text: &str, scope: TemplateScope) -> Result<Self, TemplateError> {
        let mistake = |range: Range<usize>, message: String| Err(TemplateError { message, range });
        let root = scope.root();
        if text.is_empty() {
            return mistake(
                0..0,
                format!("the format is empty; write a tag, such as `user-{{{root}.id}}`"),
            );
        }
        let mut segments = Vec::new();
        let mut position = 0;
        while position < text.len() {
            let rest = &text[position..];
            let length = rest.find(['{', '}']).unwrap_or(rest.len());
            if length > 0 {
                segments.push(Segment::Text(rest[..length].into()));
                position += length;
                continue;
            }
            if rest.starts_with('}') {
                let message = "there is no `{` before this `}`";
                return mistake(position..position + 1, message.to_owned());
            }
            let Some(end) = rest.find('}') else {
                let message = format!("this `{{` is not closed; write `{{{root}.NAME}}`");
                return mistake(position..text.len(), message);
            };
            let inner = position + 1..position + end;
            segments.push(Segment::Value(read_path(&text[inner.clone()], inner.start, scope)?));
            position = inner.end + 1;
        }
        Ok(Self { segments })
    }

    /// Returns the paths of all values that the template names, without `$key` or `$args`.
    pub fn paths(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Text(_) => None,
            Segment::Value(path) => Some(&**path),
        })
    }

    /// Renders the tag for `values` into `out`, which is cleared first.
    ///
    /// # Errors
    /// A value is missing, or the tag is too long.
    pub fn render(&self, values: &dyn TagValues, out: &mut String) -> Result<(), RenderError> {
        out.clear();
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => out.push_str(text),
                Segment::Value(path) => {
                    if !values.write_value(path, out) {
                        return Err(RenderError::NoValue(path.join(".")));
                    }
                }
            }
            if out.len() > TAG_BYTES_MAX {
                return Err(RenderError::TooLong);
            }
        }
        Ok(())
    }
}

/// Reads `$key.a.b`, which begins at `start` of the template.
fn read_path(
    text: &str,
    start: usize,
    scope: TemplateScope,
) -> Result<Box<[Box<str>]>, TemplateError> {
    let mistake = |range: Range<usize>, message: String| Err(TemplateError { message, range });
    let root = scope.root();
    let mut names = text.split('.');
    let first = names.next().unwrap_or_default();
    if first != root {
        let place = match scope {
            TemplateScope::Entity => "an entity type",
            TemplateScope::RootField => "a root field",
        };
        let message =
            format!("`{first}` is not known here: on {place}, values begin with `{root}`");
        return mistake(start..start + first.len(), message);
    }
    let mut position = start + first.len();
    let mut path = Vec::new();
    for name in names {
        let range = position + 1..position + 1 + name.len();
        position = range.end;
        if !is_name(name) {
            return mistake(range, format!("`{name}` is not the name of a field or argument"));
        }
        path.push(name.into());
    }
    if path.is_empty() {
        let message = format!("`{root}` needs a field or argument, such as `{root}.id`");
        return mistake(start..position, message);
    }
    Ok(path.into())
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values by path with dots.
    struct Values(&'static [(&'static str, &'static str)]);

    impl TagValues for Values {
        fn write_value(&self, path: &[Box<str>], out: &mut String) -> bool {
            let path = path.join(".");
            let found = self.0.iter().find(|(name, _)| *name == path);
            found.map(|(_, value)| out.push_str(value)).is_some()
        }
    }

    fn render(format: &str, values: &Values) -> Result<String, RenderError> {
        let template = TagTemplate::compile(format, TemplateScope::Entity).expect("a template");
        let mut tag = "left over".to_owned();
        template.render(values, &mut tag).map(|()| tag)
    }

    #[test]
    fn a_template_is_rendered_with_the_values_of_an_entity() {
        let values = Values(&[("id", "7"), ("org.name", "{acme}")]);
        assert_eq!(render("users", &values).as_deref(), Ok("users"));
        assert_eq!(render("user-{$key.id}", &values).as_deref(), Ok("user-7"));
        assert_eq!(render("{$key.org.name}:{$key.id}", &values).as_deref(), Ok("{acme}:7"));
        let template = TagTemplate::compile("{$key.org.name}:{$key.id}", TemplateScope::Entity);
        let paths: Vec<String> =
            template.expect("a template").paths().map(|it| it.join(".")).collect();
        assert_eq!(paths, ["org.name", "id"]);
    }

    #[test]
    fn a_tag_without_a_value_or_with_too_long_a_value_is_an_error() {
        assert_eq!(render("u-{$key.id}", &Values(&[])), Err(RenderError::NoValue("id".into())));
        struct Long;
        impl TagValues for Long {
            fn write_value(&self, _: &[Box<str>], out: &mut String) -> bool {
                out.push_str(&"x".repeat(TAG_BYTES_MAX));
                true
            }
        }
        let template =
            TagTemplate::compile("u{$key.id}", TemplateScope::Entity).expect("a template");
        assert_eq!(template.render(&Long, &mut String::new()), Err(RenderError::TooLong));
    }

    #[test]
    fn mistakes_have_a_place_and_say_what_to_write() {
        for (text, scope, place, message) in [
            (
                "",
                TemplateScope::Entity,
                "",
                "the format is empty; write a tag, such as `user-{$key.id}`",
            ),
            (
                "a{$key.id",
                TemplateScope::Entity,
                "{$key.id",
                "this `{` is not closed; write `{$key.NAME}`",
            ),
            ("a}", TemplateScope::Entity, "}", "there is no `{` before this `}`"),
            (
                "{}",
                TemplateScope::Entity,
                "",
                "`` is not known here: on an entity type, values begin with `$key`",
            ),
            (
                "{$key}",
                TemplateScope::Entity,
                "$key",
                "`$key` needs a field or argument, such as `$key.id`",
            ),
            (
                "{$args.id}",
                TemplateScope::Entity,
                "$args",
                "`$args` is not known here: on an entity type, values begin with `$key`",
            ),
            (
                "{$key.id}",
                TemplateScope::RootField,
                "$key",
                "`$key` is not known here: on a root field, values begin with `$args`",
            ),
            (
                "ä{$key.a b}",
                TemplateScope::Entity,
                "a b",
                "`a b` is not the name of a field or argument",
            ),
            ("{$key..id}", TemplateScope::Entity, "", "`` is not the name of a field or argument"),
            ("{$key.1}", TemplateScope::Entity, "1", "`1` is not the name of a field or argument"),
        ] {
            let error = TagTemplate::compile(text, scope).expect_err(text);
            assert_eq!((&text[error.range], &*error.message), (place, message), "{text}");
        }
    }

    proptest! {
        #[test]
        fn compiling_never_panics_and_places_are_inside_of_the_text(text in "[a{}$.ké ]{0,12}|\\PC{0,12}") {
            for scope in [TemplateScope::Entity, TemplateScope::RootField] {
                if let Err(error) = TagTemplate::compile(&text, scope) {
                    prop_assert!(text.get(error.range).is_some());
                }
            }
        }
    }
}
