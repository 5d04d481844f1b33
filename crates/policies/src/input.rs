//! The input of an engine, as JSON: the names of the policies, and those facts of the request that the settings list.
//! Equal inputs are equal texts, so that one decision serves all of them.

use astjson::print_string;
use execute::{ClaimPath, ClaimValues, Claims};
use expressions::{ClaimFacts, RequestFacts};
use http::{HeaderMap, HeaderName};

use crate::settings::InputSettings;

/// The facts that an input contains.
#[derive(Debug)]
pub(crate) struct InputShape {
    /// The claims, with the names by which the engine gets them.
    claims: Vec<(Box<str>, ClaimPath)>,
    headers: Vec<HeaderName>,
    has_operation: bool,
}

impl InputShape {
    /// Returns the facts that the settings list.
    pub(crate) fn new(settings: &InputSettings) -> Self {
        let mut claims = settings.claims.clone();
        claims.sort_unstable();
        claims.dedup();
        let mut headers = settings.headers.clone();
        headers.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        headers.dedup();
        Self { claims, headers, has_operation: settings.has_operation }
    }

    /// Returns the claims that an input contains.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &ClaimPath> {
        self.claims.iter().map(|(_, path)| path)
    }

    /// Returns the headers that an input contains.
    pub(crate) fn headers(&self) -> &[HeaderName] {
        &self.headers
    }

    /// True if an input contains the operation.
    pub(crate) fn has_operation(&self) -> bool {
        self.has_operation
    }

    /// Prints the question to a decision point about `policies`, which are sorted: an object with the input.
    pub(crate) fn print_question(&self, policies: &[&str], facts: &RequestFacts<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(b"{\"input\":");
        self.print(policies, facts, &mut out);
        out.push(b'}');
        out
    }

    /// Prints the input for decisions about `policies`, which are sorted.
    pub(crate) fn print(&self, policies: &[&str], facts: &RequestFacts<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"policies\":[");
        for (index, policy) in policies.iter().enumerate() {
            separate(index, out);
            print_string(policy, out);
        }
        out.extend_from_slice(b"],\"claims\":");
        self.print_claims(facts.claims, out);
        out.extend_from_slice(b",\"request\":{\"method\":");
        print_string(facts.method, out);
        out.extend_from_slice(b",\"path\":");
        print_string(facts.path, out);
        out.extend_from_slice(b",\"headers\":{");
        self.print_headers(facts.headers, out);
        out.extend_from_slice(b"}},\"client\":{\"name\":");
        print_string(facts.client.name, out);
        out.extend_from_slice(b",\"version\":");
        print_string(facts.client.version, out);
        out.push(b'}');
        if let Some(operation) = facts.operation.filter(|_| self.has_operation) {
            out.extend_from_slice(b",\"operation\":{\"name\":");
            print_string(operation.name, out);
            out.extend_from_slice(b",\"kind\":");
            print_string(operation.kind, out);
            out.extend_from_slice(b",\"id\":");
            print_string(operation.id, out);
            out.push(b'}');
        }
        out.push(b'}');
    }

    /// Prints the claims that exist; null for an anonymous client.
    fn print_claims(&self, claims: ClaimFacts<'_>, out: &mut Vec<u8>) {
        let selected: ClaimValues;
        let values = match claims {
            ClaimFacts::Anonymous => {
                out.extend_from_slice(b"null");
                return;
            }
            ClaimFacts::Token(claims) => {
                selected = Claims::select(Some(claims), self.claims());
                &selected
            }
            ClaimFacts::Selected(values) => values,
        };
        out.push(b'{');
        let present =
            self.claims.iter().filter_map(|(name, path)| Some((name, values.json(path)?)));
        for (index, (name, json)) in present.enumerate() {
            separate(index, out);
            print_string(name, out);
            out.push(b':');
            out.extend_from_slice(json.as_bytes());
        }
        out.push(b'}');
    }

    /// Prints the headers that were sent. Several values of one are joined, as proxies do (RFC 9110, section 5.3).
    fn print_headers(&self, headers: Option<&HeaderMap>, out: &mut Vec<u8>) {
        let Some(headers) = headers else { return };
        let sent = self.headers.iter().filter(|name| headers.contains_key(*name));
        for (index, name) in sent.enumerate() {
            separate(index, out);
            print_string(name.as_str(), out);
            out.push(b':');
            let values = headers.get_all(name).iter();
            let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
            print_string(&values.collect::<Vec<_>>().join(", "), out);
        }
    }
}

fn separate(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expressions::{ClientFacts, OperationFacts};
    use http::HeaderValue;
    use serde_json::json;

    fn shape(claims: &[&str], headers: &[&'static str], has_operation: bool) -> InputShape {
        let claims = claims.iter();
        let claims = claims.map(|it| ((*it).into(), ClaimPath::parse(it).expect("a path")));
        InputShape::new(&InputSettings {
            claims: claims.collect(),
            headers: headers.iter().map(|it| HeaderName::from_static(it)).collect(),
            has_operation,
        })
    }

    #[test]
    fn an_input_contains_the_listed_facts_and_no_others() {
        let claims =
            Claims::new(r#"{"sub":"a\"b","realm":{"roles":["x"]},"exp":7,"none":null}"#.into());
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-a", "1"), ("x-a", "2"), ("cookie", "secret"), ("x-b", "é\"")] {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        let operation =
            OperationFacts { name: "Q", kind: "query", id: "1f", depth: None, cost: None };
        let facts = RequestFacts {
            method: "POST",
            path: "/graphql",
            headers: Some(&headers),
            client: ClientFacts { name: "app", version: "1" },
            claims: claims.as_ref().into(),
            operation: Some(operation),
            ..RequestFacts::default()
        };
        let print = |shape: InputShape| -> serde_json::Value {
            let text = shape.print_question(&["p", "q\n"], &facts);
            serde_json::from_slice(&text).expect("JSON")
        };
        let request = json!({"method": "POST", "path": "/graphql", "headers": {}});
        let client = json!({"name": "app", "version": "1"});
        assert_eq!(
            print(shape(&["sub"], &[], false)),
            json!({"input": {"policies": ["p", "q\n"], "claims": {"sub": "a\"b"},
                "request": request, "client": client}})
        );
        let listed = shape(&["realm.roles", "none", "sub"], &["x-b", "x-a", "x-none"], true);
        assert_eq!(
            print(listed),
            json!({"input": {"policies": ["p", "q\n"],
                "claims": {"realm.roles": ["x"], "sub": "a\"b"},
                "request": {"method": "POST", "path": "/graphql",
                    "headers": {"x-a": "1, 2", "x-b": "é\""}},
                "client": client, "operation": {"name": "Q", "kind": "query", "id": "1f"}}})
        );
    }

    #[test]
    fn claims_that_were_selected_before_give_the_same_input() {
        let shape = shape(&["b", "a"], &[], false);
        let claims = Claims::new(r#"{"a":1,"b":[2],"c":3}"#.into());
        let paths: Vec<_> = ["a", "b", "c"].into_iter().filter_map(ClaimPath::parse).collect();
        let values = Claims::select(claims.as_ref(), &paths);
        let print = |claims| {
            let facts = RequestFacts { claims, ..RequestFacts::default() };
            String::from_utf8(shape.print_question(&["p"], &facts)).expect("text")
        };
        let text = print(claims.as_ref().into());
        assert_eq!(text, print(ClaimFacts::Selected(&values)));
        assert!(text.contains(r#""claims":{"a":1,"b":[2]}"#), "{text}");
        assert!(print(ClaimFacts::Anonymous).contains(r#""claims":null"#));
    }
}
