//! The language: what expressions compute, and which mistakes are found when they are compiled.

use std::net::{IpAddr, Ipv4Addr};

use execute::Claims;
use expressions::{
    ClaimFacts, ClientFacts, EvaluationError, Expected, OperationFacts, OutcomeFacts, Program,
    RequestFacts, ResponseFacts, Scope, Value,
};
use http::{HeaderMap, HeaderName, HeaderValue};

const CLAIMS: &str = r#"{
    "sub": "u1", "level": 7, "share": 0.5, "admin": true, "gone": null, "quoted": "a\"b",
    "roles": ["reader", "writer"], "realm": {"tenant": "acme", "groups": []},
    "https://example.com/tenant": "b"
}"#;

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-tenant", "t1"), ("x-many", "1"), ("x-many", "2"), ("host", "h")] {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let bytes = HeaderValue::from_bytes(b"\xff").expect("a value");
    headers.insert("x-bytes", bytes);
    headers
}

fn with_facts<T>(run: impl FnOnce(&RequestFacts<'_>) -> T) -> T {
    let (headers, claims) = (headers(), Claims::new(CLAIMS.into()).expect("an object"));
    run(&RequestFacts {
        method: "POST",
        path: "/graphql",
        headers: Some(&headers),
        client_address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        is_tls: true,
        client: ClientFacts { name: "web", version: "1.2.3" },
        claims: ClaimFacts::Token(&claims),
        operation: Some(OperationFacts {
            name: "Top",
            kind: "mutation",
            id: "abc",
            depth: Some(3),
            cost: Some(12),
        }),
        subgraph: Some("reviews"),
        response: Some(ResponseFacts { headers: &headers }),
        outcome: None,
    })
}

fn value_in(scope: Scope, text: &str) -> Result<Value, EvaluationError> {
    let program = Program::compile(text, scope, Expected::Text);
    let program = program.unwrap_or_else(|error| panic!("{text}: {error} {:?}", error.help));
    with_facts(|facts| program.evaluate(facts))
}

fn value(text: &str) -> Result<Value, EvaluationError> {
    value_in(Scope::COSTED_OPERATION, text)
}

fn text(text: &str) -> Result<Value, EvaluationError> {
    Ok(Value::Text(text.into()))
}

fn is_true(condition: &str) -> bool {
    let program = Program::compile(condition, Scope::COSTED_OPERATION, Expected::Condition);
    let program = program.unwrap_or_else(|error| panic!("{condition}: {error}"));
    with_facts(|facts| program.is_true(facts))
        .unwrap_or_else(|error| panic!("{condition}: {error}"))
}

#[test]
fn each_variable_has_its_value() {
    for (expression, expected) in [
        ("request.method", "POST"),
        ("request.path", "/graphql"),
        ("request.client_address", "192.0.2.1"),
        ("request.headers[\"x-tenant\"]", "t1"),
        ("request.headers.host", "h"),
        ("request.headers['x-many']", "1, 2"),
        ("request.headers['x-bytes']", "\u{fffd}"),
        ("client.name + '/' + client.version", "web/1.2.3"),
        ("claims.sub", "u1"),
        ("claims.quoted", "a\"b"),
        ("claims.realm.tenant", "acme"),
        ("claims['realm']['tenant']", "acme"),
        ("claims[\"https://example.com/tenant\"]", "b"),
        ("claims.roles[1]", "writer"),
        ("operation.name + operation.kind + operation.id", "Topmutationabc"),
        ("string(operation.depth) + string(operation.cost)", "312"),
    ] {
        assert_eq!(value(expression), text(expected), "{expression}");
    }
    assert_eq!(value("request.tls"), Ok(Value::Bool(true)));
    assert_eq!(value("claims.level"), Ok(Value::Integer(7)));
    assert_eq!(value("claims.share"), Ok(Value::Float(0.5)));
    let response = "subgraph.name + response.headers['x-tenant']";
    assert_eq!(value_in(Scope::RESPONSE, response), text("reviewst1"));
}

#[test]
fn an_absent_value_can_be_tested_and_replaced() {
    for condition in [
        "has(claims.sub) && !has(claims.none) && !has(claims.none.further) && !has(claims.gone)",
        "has(request.headers.host) && !has(request.headers.origin)",
        "'x-tenant' in request.headers && !('x-none' in request.headers)",
        "'sub' in claims && !('none' in claims)",
        "'writer' in claims.roles && !('admin' in claims.roles)",
        "claims.?none.orValue('x') == 'x' && claims.?sub.orValue('x') == 'u1'",
        "claims.?realm.tenant.orValue('x') == 'acme' && claims.?none.tenant.orValue('x') == 'x'",
        "request.headers[?'x-none'].orValue('x') == 'x'",
        "request.headers[?'x-none'].or(request.headers[?'x-tenant']).value() == 't1'",
        "!claims.?none.hasValue()",
        "claims.roles[?5].orValue('x') == 'x'",
    ] {
        assert!(is_true(condition), "{condition}");
    }
    assert_eq!(value("claims.?none"), Ok(Value::Null));
    assert_eq!(value("claims.?sub"), text("u1"));
    let absent = |fact: &str| Err(EvaluationError::Absent { fact: fact.into() });
    assert_eq!(value("claims.none"), absent("claims.none"));
    assert_eq!(value("request.headers['x-none']"), absent("request.headers[\"x-none\"]"));
    assert_eq!(value("claims.roles[5]"), Err(EvaluationError::NoElement));
}

#[test]
fn operators_and_functions_compute() {
    for condition in [
        "claims.level + 1 == 8 && claims.level > 6.5 && claims.level % 2 == 1 && -claims.level < 0",
        "claims.admin || claims.none",
        "!(false && claims.none)",
        "(claims.level > 5 ? 'high' : 'low') == 'high'",
        "client.name.startsWith('w') && client.name.endsWith('b') && client.name.contains('e')",
        "client.version.matches('^[0-9]+[.]') && !matches(client.name, '^x')",
        "size(claims.roles) == 2 && client.name.size() == 3 && size(claims.realm) == 2",
        "client.name.upperAscii().lowerAscii() == 'web' && ' a '.trim() == 'a'",
        "client.version.split('.')[1] == '2' && claims.roles.join(',') == 'reader,writer'",
        "int('7') == claims.level && double('0.5') == claims.share && string(7) == '7'",
        "claims.roles.exists(role, role == 'writer') && claims.roles.all(role, role != 'admin')",
        "claims.roles.exists_one(role, role.startsWith('w'))",
        "claims.roles.filter(role, role != 'reader') == ['writer']",
        "operation.kind in ['mutation', 'subscription']",
        "{'acme': 'gold'}[claims.realm.tenant] == 'gold'",
        "claims.realm.groups == []",
    ] {
        assert!(is_true(condition), "{condition}");
    }
}

#[test]
fn failures_say_why_and_never_with_values() {
    use EvaluationError::{NotANumber, OutOfRange, TooManySteps, WrongType};
    for (expression, expected) in [
        ("claims.sub + 1", WrongType),
        ("claims.roles", WrongType),
        ("claims.level / 0", OutOfRange),
        ("claims.level % 0", OutOfRange),
        ("claims.level * 9223372036854775807", OutOfRange),
        ("int(claims.sub)", NotANumber),
        ("claims.sub < 5", WrongType),
        (
            "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(b, \
             [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(c, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(d, \
             a + b + c + d > 0))))",
            TooManySteps,
        ),
    ] {
        let error = value(expression).expect_err(expression);
        assert_eq!(error, expected, "{expression}");
        assert!(!error.to_string().contains("u1"), "{error}");
    }
    let long = "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'";
    let growing =
        format!("{long}.split('').join({long}).split('').join({long}).split('').join({long})");
    assert_eq!(value(&growing), Err(EvaluationError::TooLarge));
}

#[test]
fn a_client_without_a_token_has_no_claims() {
    let program = |text| Program::compile(text, Scope::REQUEST, Expected::Text).expect("valid");
    let anonymous = RequestFacts::default();
    assert_eq!(program("claims.?sub.orValue('-')").evaluate(&anonymous), text("-"));
    assert_eq!(program("has(claims.sub)").evaluate(&anonymous), Ok(Value::Bool(false)));
    assert_eq!(program("client.name").evaluate(&anonymous), text(""));
    let error = program("request.client_address").evaluate(&anonymous);
    assert_eq!(error, Err(EvaluationError::Absent { fact: "request.client_address".into() }));
}

#[test]
fn a_program_knows_the_claims_and_headers_that_it_reads() {
    let text = "claims.realm.tenant + claims.?sub.orValue('') + request.headers['x-b'] + \
                (has(request.headers.a) ? client.name : claims.realm.tenant)";
    let program = Program::compile(text, Scope::REQUEST, Expected::Text).expect("valid");
    let references = program.references();
    let claims: Vec<_> = references.claims.iter().map(ToString::to_string).collect();
    assert_eq!(claims, ["realm.tenant", "sub"]);
    assert_eq!(references.headers, ["a", "x-b"]);
    assert!(references.client && !references.operation);
    // Claims that were selected for several programs are enough.
    let claims = Claims::new(CLAIMS.into());
    let selected = Claims::select(claims.as_ref(), &references.claims);
    let mut headers = headers();
    headers.insert("x-b", HeaderValue::from_static("b"));
    let claims = ClaimFacts::Selected(&selected);
    let facts = RequestFacts { headers: Some(&headers), claims, ..RequestFacts::default() };
    assert_eq!(program.evaluate(&facts), Ok(Value::Text("acmeu1bacme".into())));
}

/// Returns the message about a mistake.
fn mistake(scope: Scope, expected: Expected, text: &str) -> String {
    let error = Program::compile(text, scope, expected).expect_err(text);
    assert!(text.get(error.range.clone()).is_some(), "{text}: {:?}", error.range);
    error.message
}

#[test]
fn mistakes_are_found_when_an_expression_is_compiled() {
    let condition = |text| mistake(Scope::OPERATION, Expected::Condition, text);
    for (text, expected) in [
        ("", "it is empty"),
        ("client.nome == 'x'", "`client` has no member `nome`"),
        ("user == 'x'", "unknown variable `user`"),
        ("subgraph.name == 'x'", "`subgraph` does not exist here"),
        ("operation.cost > 5", "`operation.cost` does not exist here"),
        ("request.path.x == ''", "`request.path` has no member `x`"),
        ("claims", "`claims` has many members: name one"),
        ("claims[client.name] == 1", "a header or claim must be named by a constant text"),
        ("client.name in claims", "a header or claim must be named by a constant text"),
        ("request.headers['X-A'] == ''", "names of headers are in lower case"),
        ("request == 1", "`request` is not a value"),
        ("client.name", "the result is a text, and must be `true` or `false`"),
        ("client.name == 5", "`==` compares a text with a whole number, which are never equal"),
        ("client.name < 5", "`<` cannot compare a text with a whole number"),
        ("client.name && true", "each side of `&&` must be `true` or `false`, not a text"),
        ("!client.name", "the value after `!` must be `true` or `false`, not a text"),
        ("client.name + 1 == ''", "`+` cannot add a text and a whole number"),
        ("client.name.startswith('x')", "unknown function `startswith`"),
        ("size(5) == 1", "`size` cannot be applied to a whole number"),
        (
            "claims.roles.map(r, r + r) == []",
            "`map` is not supported, because its results could grow without a bound",
        ),
        ("client.name.matches('(')", "the pattern is not valid: unclosed group"),
        ("client.name.matches(claims.sub)", "the pattern of `matches` must be a constant text"),
        ("claims.x.all(client, true)", "`client` is the name of a variable"),
    ] {
        assert_eq!(condition(text), expected, "{text}");
    }
    let list = mistake(Scope::REQUEST, Expected::Text, "[claims.sub]");
    assert_eq!(list, "the result is a list, and must be a text");
    let elsewhere = mistake(Scope::RESPONSE, Expected::Text, "claims.sub");
    assert_eq!(elsewhere, "`claims` does not exist here");
}

#[test]
fn the_cost_exists_where_it_has_been_estimated() {
    let text = "operation.cost > 5 && operation.kind == 'query'";
    let program = Program::compile(text, Scope::COSTED_OPERATION, Expected::Condition);
    assert!(program.expect("valid").references().cost);
    for scope in [Scope::OPERATION, Scope::REQUEST, Scope::RESPONSE] {
        let error = Program::compile(text, scope, Expected::Condition).expect_err(text);
        let help = error.help.unwrap_or_default();
        match scope == Scope::OPERATION {
            true => assert!(help.contains("`unit: cost`"), "{help}"),
            false => assert_eq!(error.message, "`operation` does not exist here"),
        }
    }
    let unknown = mistake(Scope::COSTED_OPERATION, Expected::Condition, "operation.price > 5");
    assert_eq!(unknown, "`operation` has no member `price`");
}

#[test]
fn the_outcome_exists_in_the_log_of_requests() {
    let outcome = OutcomeFacts { status: Some(503), errors: 2, bytes: None, milliseconds: 40 };
    let is_true = |text: &str| {
        let program = Program::compile(text, Scope::LOG, Expected::Condition);
        let program = program.unwrap_or_else(|error| panic!("{text}: {error}"));
        let facts = RequestFacts { outcome: Some(outcome), ..RequestFacts::default() };
        program.is_true(&facts)
    };
    for text in [
        "response.status >= 500",
        "response.errors > 0 && response.milliseconds < 100",
        "!has(response.bytes)",
    ] {
        assert_eq!(is_true(text), Ok(true), "{text}");
    }
    assert!(is_true("response.bytes > 0").is_err(), "it is absent");
    let headers = mistake(Scope::LOG, Expected::Text, "response.headers['x-a']");
    assert_eq!(headers, "`response.headers` has no member `x-a`");
    let elsewhere = mistake(Scope::RESPONSE, Expected::Condition, "response.status > 0");
    assert_eq!(elsewhere, "`response` has no member `status`");
}

#[test]
fn the_part_with_the_mistake_is_marked() {
    for (text, expected) in [
        ("client.name == client.nome", "nome"),
        ("'é' == user", "user"),
        ("request.headers['X-A']", "X-A"),
        ("claims.a\n  && subgraph.name == 'b'", "subgraph"),
    ] {
        let error = Program::compile(text, Scope::REQUEST, Expected::Text).expect_err(text);
        assert_eq!(text.get(error.range), Some(expected), "{text}");
    }
}

#[test]
fn syntax_errors_have_a_place() {
    let place = |text: &str| {
        let error = Program::compile(text, Scope::REQUEST, Expected::Text).expect_err(text);
        (error.line_column(text), error.message)
    };
    let (at, message) = place("claims.sub ==");
    assert_eq!(at, (1, 13), "{message}");
    assert!(message.starts_with("syntax error: "), "{message}");
    let (at, message) = place("claims.sub +\n  'é' + ) ");
    assert_eq!(at, (2, 9), "{message}");
    let (at, message) = place("'é' + 'é' + nome");
    assert_eq!((at, message.as_str()), ((1, 13), "unknown variable `nome`"));
}

#[test]
fn large_and_deep_expressions_are_refused() {
    let refused = |text: &str| {
        let error = Program::compile(text, Scope::REQUEST, Expected::Text);
        error.map(drop).expect_err("it is refused").message
    };
    assert_eq!(refused(&"x".repeat(2049)), "it is longer than 2048 bytes");
    let chain = format!("1{}", "+1".repeat(1000));
    assert_eq!(refused(&chain), "it is nested more than 48 levels deep");
    let members = format!("claims.roles[0]{}", ".a".repeat(900));
    assert_eq!(refused(&members), "it is nested more than 48 levels deep");
    for deep in ["(".repeat(2000), "[".repeat(2000), "!".repeat(2000), "-".repeat(2000)] {
        refused(&deep);
    }
}
