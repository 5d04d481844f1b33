//! Restrictions: keys that keep clients out. Without one of them the result would be more open than its source, so the
//! strictest form takes the place of a value that cannot be kept.

use super::target::{Source, Target, Value};

/// The key by which clients need a token.
pub(crate) const REQUIRED: &str = "authentication.jwt.required";

/// The keys of `block` that are conditions.
const BLOCKS: [&str; 4] = ["mutations", "subscriptions", "introspection", "unknown_clients"];

/// True if a key restricts clients. `path` is that of a single value: `block.mutations`.
pub(crate) fn is_one(path: &str) -> bool {
    match path {
        REQUIRED
        | "introspection"
        | "introspection.enabled"
        | "introspection.when"
        | "persisted_documents.mode" => true,
        _ => {
            blocked(path).is_some()
                || is_rule(path)
                || path.starts_with("listen[") && path.ends_with(".tls.client_ca")
        }
    }
}

/// True if a value, as YAML writes it, makes a key refuse something.
pub(crate) fn restricts(path: &str, value: &str) -> bool {
    match path {
        "introspection" | "introspection.enabled" => value != "true",
        // YAML needs quotes for `off`.
        "persisted_documents.mode" => !matches!(value, "\"off\"" | "log_unknown"),
        REQUIRED => value != "false",
        _ if blocked(path).is_some() => value != "false",
        _ => is_one(path),
    }
}

/// True for the conditions of rules that refuse operations.
pub(crate) fn is_rule(path: &str) -> bool {
    path.starts_with("block.rules[")
}

/// Puts the strictest form in place of a restriction, and returns what that does, for a finding. `refused` is a value
/// that the checks of the configuration do not accept: if it is the strictest form itself, every operation is refused.
pub(crate) fn close(
    target: &mut Target,
    path: &str,
    refused: Option<&str>,
    source: &Source,
) -> String {
    let (keys, value, message): (Vec<&str>, Option<bool>, &str) = match path {
        // The checks refuse it only if there is no issuer, whatever its value is.
        REQUIRED => {
            let keys = REQUIRED.split('.').collect();
            (keys, refused.is_none().then_some(true), "tokens cannot be verified yet")
        }
        "introspection" | "introspection.enabled" | "introspection.when" => {
            (vec!["introspection"], Some(false), "introspection cannot be refused yet")
        }
        "persisted_documents.mode" => (Vec::new(), None, "persisted documents are not set up yet"),
        _ => match blocked(path) {
            Some(key) => {
                (vec!["block", key], Some(true), "the operations to refuse are not known yet")
            }
            None => (Vec::new(), None, "certificates of clients cannot be verified yet"),
        },
    };
    if let Some(value) = value.filter(|it| refused != Some(&*it.to_string())) {
        target.remove_key(&keys);
        let comment = format!("The strictest form, until `{}` has a counterpart.", source.key);
        let keys: Vec<_> = keys.into_iter().map(str::to_owned).collect();
        if target.set(&keys, Value::Bool(value), source, Some(&comment)) {
            return format!("until then, the result has `{}: {value}`", keys.join("."));
        }
    }
    refuse_operations(target, source, message);
    "until then, the result refuses every operation".to_owned()
}

/// Adds a rule that refuses every operation.
pub(crate) fn refuse_operations(target: &mut Target, source: &Source, message: &str) {
    let to = ["block".to_owned(), "rules".to_owned()];
    let rule =
        Value::map([("when", Some(Value::Bool(true))), ("message", Some(Value::text(message)))]);
    let comment = format!(
        "Refuses every operation until `{}` of the source has a counterpart. Remove the rule then.",
        source.key
    );
    target.push(&to, rule, source, Some(&comment));
}

/// Returns the key of a condition of `block`.
fn blocked(path: &str) -> Option<&'static str> {
    let key = path.strip_prefix("block.")?;
    BLOCKS.into_iter().find(|it| *it == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_form_takes_the_place_of_a_restriction() {
        let all = "block:\n  rules:\n    - when: true\n";
        let cases = [
            ("introspection.when", Some("a ="), "introspection: false\n"),
            ("introspection", Some("false"), all),
            ("block.mutations", None, "block:\n  mutations: true\n"),
            ("block.mutations", Some("true"), all),
            (REQUIRED, None, "authentication:\n  jwt:\n    required: true\n"),
            (REQUIRED, Some("true"), all),
            ("persisted_documents.mode", Some("require_id"), all),
            ("listen[0].tls.client_ca", None, all),
        ];
        for (path, refused, expected) in cases {
            let mut target = Target::default();
            let source = Source { line: Some(1), key: "there".into() };
            let earlier = ["introspection".to_owned(), "filter".to_owned()];
            if path.starts_with("introspection") {
                assert!(target.set(&earlier, Value::Bool(true), &source, None));
            }
            assert!(is_one(path), "{path}");
            close(&mut target, path, refused, &source);
            let text = target.render(&[], None).text;
            let lines = text.lines().filter(|it| !it.trim_start().starts_with('#'));
            let text: String = lines.map(|it| format!("{it}\n")).collect();
            assert!(text.contains(expected), "{path}: {text}");
        }
    }

    #[test]
    fn values_that_refuse_nothing_are_no_restrictions() {
        let open = [
            ("introspection", "true"),
            ("persisted_documents.mode", "log_unknown"),
            ("persisted_documents.mode", "\"off\""),
            (REQUIRED, "false"),
            ("block.mutations", "false"),
            ("limits.depth", "5"),
        ];
        for (path, value) in open {
            assert!(!restricts(path, value), "{path}: {value}");
        }
        let closed = [
            ("introspection", "${INTROSPECTION}"),
            ("introspection.when", "client.name == 'a'"),
            ("persisted_documents.mode", "require_id"),
            (REQUIRED, "${REQUIRED:-false}"),
            ("block.mutations", "${BLOCKED}"),
            ("block.rules[0].when", "true"),
            ("listen[0].tls.client_ca", "clients.pem"),
        ];
        for (path, value) in closed {
            assert!(restricts(path, value), "{path}: {value}");
        }
    }
}
