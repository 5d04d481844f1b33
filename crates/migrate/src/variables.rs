//! References to environment variables in the forms of other routers, in the form of Starling: `${NAME}`, with a
//! default `${NAME:-text}`. A literal `${` becomes `$${`.

use super::router::Router;

/// Rewrites the references in a value.
///
/// # Errors
/// The value has a reference that Starling cannot have; the reason is for a sentence after "the value".
pub(crate) fn rewrite(text: &str, router: Router) -> Result<String, String> {
    let mut written = String::with_capacity(text.len());
    // The text since the last reference.
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        literal.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (reference, length) = match (after.chars().next(), router) {
            (Some('{'), _) => {
                let end = after.find('}').ok_or("has a reference `${` without an end")?;
                (reference(&after[1..end], router)?, end + 1)
            }
            (Some('$'), Router::Apollo) => {
                literal.push('$');
                rest = &after[1..];
                continue;
            }
            (Some('$'), Router::Cosmo) => {
                return Err("has `$$`, in place of which Cosmo Router puts nothing".into());
            }
            // Cosmo Router expands the whole file by the rules of Go, which need no braces.
            (Some(_), Router::Cosmo) => {
                let length = after.find(|c: char| !is_name_character(c)).unwrap_or(after.len());
                let name = &after[..length];
                (is_name(name).then(|| format!("${{{name}}}")), length)
            }
            _ => (None, 0),
        };
        match reference {
            Some(reference) => {
                if literal.ends_with('$') {
                    return Err("has a literal `$` directly before a reference".into());
                }
                written.push_str(&escape(&literal));
                literal.clear();
                written.push_str(&reference);
            }
            None => literal.push_str(&rest[at..=at + length]),
        }
        rest = &after[length..];
    }
    literal.push_str(rest);
    written.push_str(&escape(&literal));
    Ok(written)
}

/// Writes a text so that Starling sees no references in it.
fn escape(literal: &str) -> String {
    literal.replace("${", "$${")
}

/// Returns the default of the reference that a rewritten value consists of. The outer `None`: it is more than one
/// reference, or less.
pub(crate) fn only_reference(text: &str) -> Option<Option<&str>> {
    let inside = text.strip_prefix("${")?.strip_suffix('}')?;
    if inside.contains('}') {
        return None;
    }
    Some(inside.split_once(":-").map(|(_, default)| default))
}

/// Returns the path of `${file.PATH}`, in which Apollo Router reads the content of a file.
pub(crate) fn file_reference(text: &str) -> Option<&str> {
    let path = text.trim().strip_prefix("${file.")?.strip_suffix('}')?;
    (!path.is_empty() && !path.contains(['$', '{', '}'])).then_some(path)
}

/// Returns the reference to a variable that an expression of Hive Router consists of: `env("NAME", "default")`.
pub(crate) fn of_expression(expression: &str) -> Option<String> {
    let inside = expression.trim().strip_prefix("env(")?.strip_suffix(')')?;
    let mut words = inside.split(',').map(|word| {
        let word = word.trim();
        let text = word.strip_prefix('"')?.strip_suffix('"')?;
        (!text.contains(['"', '\\', '$', '}'])).then_some(text)
    });
    let name = words.next()??;
    let default = words.next();
    if !is_name(name) {
        return None;
    }
    match default {
        None => Some(format!("${{{name}}}")),
        Some(default) => Some(format!("${{{name}:-{}}}", default?)),
    }
}

/// True if a value that was rewritten has a reference.
pub(crate) fn has_reference(text: &str) -> bool {
    text.match_indices("${").any(|(at, _)| !text[..at].ends_with('$'))
}

/// Returns the reference with this text between its braces. `None`: it is text there.
fn reference(inside: &str, router: Router) -> Result<Option<String>, String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let name = match router {
        Router::Apollo => {
            if name.starts_with("file.") {
                return Err("is the content of a file (`${file.…}`)".into());
            }
            match name.strip_prefix("env.") {
                Some(name) => name,
                // Apollo Router refuses other references; what looks like one is text.
                None => return Ok(None),
            }
        }
        Router::Cosmo | Router::Hive => name,
    };
    if !is_name(name) {
        return Err("has a reference that is not the name of an environment variable".into());
    }
    if default.is_some_and(|it| it.contains("${")) {
        return Err("has a reference in the default of another".into());
    }
    Ok(Some(match default {
        Some(default) => format!("${{{name}:-{default}}}"),
        None => format!("${{{name}}}"),
    }))
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(is_name_character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_each_router_become_those_of_starling() {
        let cases = [
            (Router::Apollo, "${env.URL}", "${URL}"),
            (Router::Apollo, "http://${env.HOST:-localhost}:1", "http://${HOST:-localhost}:1"),
            (Router::Apollo, "${HOST}", "$${HOST}"),
            (Router::Apollo, "^x-$", "^x-$"),
            (Router::Cosmo, "${URL}/a/$PATH_", "${URL}/a/${PATH_}"),
            (Router::Cosmo, "^https://a$", "^https://a$"),
            (Router::Hive, "${URL}", "${URL}"),
            (Router::Hive, "$URL costs", "$URL costs"),
            (Router::Hive, "5$", "5$"),
            // `$$` is a literal `$` there.
            (Router::Apollo, "$${env.URL}", "$${env.URL}"),
            (Router::Apollo, "a$$b", "a$b"),
            (Router::Apollo, "$${a}${env.B}", "$${a}${B}"),
        ];
        for (router, text, written) in cases {
            assert_eq!(rewrite(text, router).as_deref(), Ok(written), "{text}");
        }
        assert!(rewrite("${file./run/secret}", Router::Apollo).is_err());
        assert!(rewrite("${1}", Router::Cosmo).is_err());
        assert!(rewrite("${A", Router::Hive).is_err());
        assert!(rewrite("$$A", Router::Cosmo).is_err());
        assert!(rewrite("${env.A:-${env.B}}", Router::Apollo).is_err());
        assert_eq!(file_reference("${file./run/cert.pem}"), Some("/run/cert.pem"));
        assert_eq!(file_reference("${env.A}"), None);
        assert!(has_reference("a ${B}") && !has_reference("a $${B}"));
    }

    #[test]
    fn a_literal_dollar_never_becomes_a_part_of_a_reference() {
        // Starling would read `$${PRICE}` as the text `${PRICE}`.
        for (router, text) in [(Router::Apollo, "$$${env.PRICE}"), (Router::Hive, "$${PRICE}")] {
            let reason = rewrite(text, router).unwrap_err();
            assert_eq!(reason, "has a literal `$` directly before a reference", "{text}");
        }
    }

    #[test]
    fn a_value_that_consists_of_one_reference_is_told_from_others() {
        assert_eq!(only_reference("${A}"), Some(None));
        assert_eq!(only_reference("${A:-5}"), Some(Some("5")));
        for text in ["1${A}", "${A}0", "${A}${B}", "$${A}", "A", ""] {
            assert_eq!(only_reference(text), None, "{text}");
        }
    }

    #[test]
    fn the_function_env_is_a_reference_if_it_stands_alone() {
        assert_eq!(of_expression(r#"env("A")"#).as_deref(), Some("${A}"));
        assert_eq!(of_expression(r#" env("A", "b c") "#).as_deref(), Some("${A:-b c}"));
        assert_eq!(of_expression(r#"env("A") != "true""#), None);
        assert_eq!(of_expression(r#"env(1)"#), None);
    }
}
