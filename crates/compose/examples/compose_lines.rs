//! Composes one federation for each line of standard input, for comparisons with other implementations:
//! `{"name": …, "subgraphs": [{"name": …, "url": …, "sdl": …}]}` gives
//! `{"name": …, "success": …, "codes": […], "hints": […], "messages": […], "supergraph": …}`.

use std::io::{BufRead as _, Write as _};

use compose::{Composition, Finding, SubgraphInput};
use serde_json::{Value, json};

fn codes(findings: &[Finding]) -> Vec<&'static str> {
    let mut codes: Vec<_> = findings.iter().map(|it| it.code.name()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

fn main() {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("readable input");
        let federation: Value = serde_json::from_str(&line).expect("JSON on each line");
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let read = |it: &Value| SubgraphInput {
            name: text(it, "name"),
            url: text(it, "url"),
            file: format!("{}.graphql", text(it, "name")),
            sdl: text(it, "sdl"),
            subscription: None,
        };
        let subgraphs: Vec<_> =
            federation["subgraphs"].as_array().into_iter().flatten().map(read).collect();
        let start = std::time::Instant::now();
        let result = compose::compose(&subgraphs);
        let milliseconds = start.elapsed().as_secs_f64() * 1000.0;
        let (success, errors, hints, sdl) = match result {
            Composition::Success { supergraph_sdl, hints } => {
                (true, Vec::new(), hints, supergraph_sdl)
            }
            Composition::Failure { errors, hints } => (false, errors, hints, String::new()),
        };
        let messages: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let report = json!({
            "name": federation["name"],
            "success": success,
            "codes": codes(&errors),
            "hints": codes(&hints),
            "messages": messages,
            "milliseconds": milliseconds,
            "supergraph": sdl,
        });
        writeln!(output, "{report}").expect("writable output");
    }
}
