//! Any text as an expression: compiling never panics, a mistake has a place inside the text, and evaluating a valid
//! program never panics and ends.
//!
//! The text after the last zero byte, if there is one, is the JSON of the claims.

#![no_main]

use execute::Claims;
use expressions::{
    ClaimFacts, ClientFacts, EvaluationError, Expected, OperationFacts, Program, RequestFacts,
    Scope,
};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

const CLAIMS: &str = r#"{"a":"b","n":-1,"f":1.5,"l":["x",1,null,{"k":[]}],"m":{"k":"v"},"t":true}"#;

fuzz_target!(|data: &[u8]| {
    let Ok(input) = std::str::from_utf8(data) else { return };
    let (text, claims) = input.rsplit_once('\0').unwrap_or((input, CLAIMS));
    let claims = Claims::new(claims.to_owned().into());
    let mut headers = HeaderMap::new();
    headers.insert("a", HeaderValue::from_static("b"));
    for expected in [Expected::Text, Expected::Condition] {
        let program = match Program::compile(text, Scope::COSTED_OPERATION, expected) {
            Ok(program) => program,
            Err(error) => {
                assert!(text.get(error.range.clone()).is_some(), "{error:?}");
                assert_ne!(error.message, "it cannot be compiled", "the parser panicked");
                continue;
            }
        };
        let facts = RequestFacts {
            method: "POST",
            path: "/",
            headers: Some(&headers),
            client: ClientFacts { name: "a", version: "1" },
            claims: ClaimFacts::from(claims.as_ref()),
            operation: Some(OperationFacts {
                name: "A",
                kind: "query",
                id: "0",
                depth: Some(1),
                cost: Some(2),
            }),
            ..RequestFacts::default()
        };
        let value = program.evaluate(&facts);
        assert_ne!(value, Err(EvaluationError::Failed), "the interpreter panicked: {text}");
    }
});
