//! Expressions of other routers, as far as they can be written in CEL: expr-lang of Cosmo Router, and VRL of Hive
//! Router. The checks of the configuration compile the results.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Compiles a constant pattern.
fn pattern(text: &str) -> Regex {
    // The patterns of this module are constants that its tests use.
    Regex::new(text).expect("a constant pattern")
}

static HEADER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"request\.header\.Get\(\s*['"]([A-Za-z0-9_-]+)['"]\s*\)"#));
static CLAIM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"request\.auth\.claims((?:\.[A-Za-z_][A-Za-z0-9_]*)+)"));
static IF_AUTHENTICATED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"^request\.auth\.isAuthenticated\s*\?\s*(.+?)\s*:\s*(''|"")$"#));
static VRL_HEADER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"\.request\.headers\.(?:"([A-Za-z0-9_-]+)"|([A-Za-z0-9_]+))"#));
static VRL_IF: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?s)^if\s+(.+?)\s*\{\s*([^{}]+?)\s*\}\s*else\s*\{\s*([^{}]+?)\s*\}$")
});
static VRL_SHARE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^random_float\(\s*0(?:\.0+)?\s*,\s*100(?:\.0+)?\s*\)\s*<=?\s*([0-9]+(?:\.[0-9]+)?)$")
});
static CALL: LazyLock<Regex> = LazyLock::new(|| pattern(r"[A-Za-z_][A-Za-z0-9_!]*\("));
static TEXT: LazyLock<Regex> = LazyLock::new(|| pattern(r#"'[^'\\]*'|"[^"\\]*""#));

/// Returns the claim that an expression of Cosmo Router consists of: `sub` for `request.auth.claims.sub`.
pub(crate) fn claim(expression: &str) -> Option<String> {
    let expression = expression.trim();
    let inner = IF_AUTHENTICATED.captures(expression).map(|it| it[1].to_owned());
    let expression = inner.as_deref().unwrap_or(expression);
    let found = CLAIM.captures(expression)?;
    (found[0].len() == expression.len()).then(|| found[1].trim_start_matches('.').to_owned())
}

/// Returns the header that an expression of Cosmo Router consists of.
pub(crate) fn header(expression: &str) -> Option<String> {
    let expression = expression.trim();
    let found = HEADER.captures(expression)?;
    (found[0].len() == expression.len()).then(|| found[1].to_lowercase())
}

/// Translates an expression of Cosmo Router (expr-lang). `None` if it has parts without a counterpart.
pub(crate) fn from_expr_lang(expression: &str) -> Option<String> {
    let expression = expression.trim();
    if let Some(found) = IF_AUTHENTICATED.captures(expression) {
        return optional_expr(&found[1]);
    }
    let alternatives: Vec<_> = expression.split("??").map(str::trim).collect();
    if let Some((last, first)) = alternatives.split_last()
        && !first.is_empty()
    {
        let last = plain_expr(last)?;
        return first.iter().rev().try_fold(last, |rest, part| {
            Some(format!("{}.orValue({rest})", optional_expr(part)?))
        });
    }
    plain_expr(expression)
}

/// Translates an expression of Hive Router (VRL). `None` if it has parts without a counterpart.
pub(crate) fn from_vrl(expression: &str) -> Option<String> {
    let expression = expression.trim();
    if let Some(found) = VRL_IF.captures(expression) {
        let [condition, then, otherwise] = [&found[1], &found[2], &found[3]].map(from_vrl);
        return Some(format!("{} ? {} : {}", condition?, then?, otherwise?));
    }
    for operator in ["??", "||"] {
        if let Some((value, default)) = expression.split_once(operator)
            && let Some(found) = VRL_HEADER.captures(value.trim())
            && found[0].len() == value.trim().len()
            && TEXT.find(default.trim()).is_some_and(|it| it.len() == default.trim().len())
        {
            return Some(format!("{}.orValue({})", vrl_header(&found), default.trim()));
        }
    }
    let written = VRL_HEADER
        .replace_all(expression, |found: &Captures<'_>| {
            format!("{}.orValue(\"\")", vrl_header(found))
        })
        .replace(".request.method", "request.method.lowerAscii()")
        .replace(".request.url.path", "request.path")
        .replace(".request.operation.name", "operation.name")
        .replace(".request.operation.type", "operation.kind")
        .replace(".subgraph.name", "subgraph.name");
    let rest = TEXT.replace_all(&written, "''");
    let rest = rest.replace(".orValue(", "").replace(".lowerAscii()", "");
    let has_foreign_part = CALL.is_match(&rest)
        || rest.contains("??")
        || rest.contains(['{', '}', ';', '|'])
        || has_leading_dot(&rest);
    (!has_foreign_part).then_some(written)
}

/// Returns the percentage of `random_float(0.0, 100.0) < 5.0`.
pub(crate) fn share_of_vrl(expression: &str) -> Option<String> {
    let found = VRL_SHARE.captures(expression.trim())?;
    Some(super::quantity::print_ratio(found[1].parse::<f64>().ok()? / 100.0))
}

/// Translates a value that may be absent.
fn optional_expr(expression: &str) -> Option<String> {
    if let Some(name) = header(expression) {
        return Some(format!("request.headers[?\"{name}\"]"));
    }
    claim(expression).map(|path| optional_claim(&path))
}

fn plain_expr(expression: &str) -> Option<String> {
    let written = HEADER.replace_all(expression, |found: &Captures<'_>| {
        format!("request.headers[?\"{}\"].orValue(\"\")", found[1].to_lowercase())
    });
    let written = CLAIM.replace_all(&written, |found: &Captures<'_>| {
        format!("{}.orValue(\"\")", optional_claim(found[1].trim_start_matches('.')))
    });
    let written = written
        .replace("request.operation.name", "operation.name")
        .replace("request.operation.type", "operation.kind")
        .replace("request.operation.hash", "operation.id")
        .replace("request.client.", "client.")
        .replace("request.url.path", "request.path");
    let rest = TEXT.replace_all(&written, "''");
    let known = ["request.headers", "request.method", "request.path", ".orValue("];
    let rest = known.iter().fold(rest.into_owned(), |rest, known| rest.replace(known, ""));
    let has_foreign_part = rest.contains("request.")
        || rest.contains("nil")
        || rest.contains("??")
        || (rest.contains('|') && !rest.contains("||"))
        || CALL.is_match(&rest);
    (!has_foreign_part).then_some(written)
}

fn optional_claim(path: &str) -> String {
    path.split('.').fold("claims".to_owned(), |claims, name| format!("{claims}.?{name}"))
}

fn vrl_header(found: &Captures<'_>) -> String {
    let name = found.get(1).or_else(|| found.get(2)).map_or("", |it| it.as_str());
    format!("request.headers[?\"{}\"]", name.to_lowercase())
}

/// True if a path of VRL (`.request.…`) is left.
fn has_leading_dot(text: &str) -> bool {
    let before_dots = text.match_indices('.').map(|(at, _)| text[..at].chars().next_back());
    let mut before_dots = before_dots.map(|it| it.unwrap_or(' '));
    before_dots.any(|before| !before.is_ascii_alphanumeric() && !matches!(before, '_' | ']' | ')'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_cosmo_router_become_cel() {
        let cases = [
            (
                "request.header.Get('X-Block') == 'yes'",
                Some(r#"request.headers[?"x-block"].orValue("") == 'yes'"#),
            ),
            (
                "request.auth.claims.sub ?? request.header.Get('X-Forwarded-For')",
                Some(r#"claims.?sub.orValue(request.headers[?"x-forwarded-for"].orValue(""))"#),
            ),
            ("request.operation.type == 'mutation'", Some("operation.kind == 'mutation'")),
            ("request.client.name == \"web\"", Some("client.name == \"web\"")),
            ("request.auth.isAuthenticated ? request.auth.claims.a.b : ''", Some("claims.?a.?b")),
            ("true", Some("true")),
            ("'read' in request.auth.scopes", None),
            ("request.error ?? 'success'", None),
            ("request.error != nil", None),
            ("hasPrefix(request.operation.name, 'x')", None),
            ("request.url.query.a == 'b'", None),
        ];
        for (expression, expected) in cases {
            assert_eq!(from_expr_lang(expression).as_deref(), expected, "{expression}");
        }
        assert_eq!(claim("request.auth.claims.sub").as_deref(), Some("sub"));
        assert_eq!(claim("request.auth.claims.sub + 'a'"), None);
        assert_eq!(header("request.header.Get('X-A')").as_deref(), Some("x-a"));
    }

    #[test]
    fn expressions_of_hive_router_become_cel() {
        let cases = [
            (
                r#".request.headers."x-beta" == "true""#,
                Some(r#"request.headers[?"x-beta"].orValue("") == "true""#),
            ),
            (
                r#".request.headers.authorization ?? "none""#,
                Some(r#"request.headers[?"authorization"].orValue("none")"#),
            ),
            (
                "if .request.operation.type == \"mutation\" {\n \"a\"\n} else {\n \"b\"\n}",
                Some(r#"operation.kind == "mutation" ? "a" : "b""#),
            ),
            (r#"split(.request.headers.authorization, " ")[0]"#, None),
            (".default", None),
            (".timestamp", None),
            (r#"env("A") != "true""#, None),
        ];
        for (expression, expected) in cases {
            assert_eq!(from_vrl(expression).as_deref(), expected, "{expression}");
        }
        assert_eq!(share_of_vrl("random_float(0.0, 100.0) < 5.0").as_deref(), Some("5%"));
        assert_eq!(share_of_vrl("random_float(0.0, 1.0) < 0.5"), None);
    }
}
