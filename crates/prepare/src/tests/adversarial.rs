//! Documents that try to cost more than they have characters. Each must get a result within seconds
//! in a debug build, on a stack of the size that threads of the blocking pool have.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::{SCHEMA, on_a_stack_of_2_mib, pipeline_of};

use crate::operation_variant::OperationVariant;
use crate::{Limits, PrepareError};

/// For a debug build on a busy machine: thirty times the time on an idle one.
const TIME_MAX: Duration = Duration::from_secs(20);

fn prepare(text: String) -> Result<(), PrepareError> {
    prepare_within(text, Limits::default())
}

fn prepare_within(text: String, limits: Limits) -> Result<(), PrepareError> {
    on_a_stack_of_2_mib(move || {
        let pipeline = pipeline_of(SCHEMA, limits);
        let started = Instant::now();
        let result =
            pipeline.prepare(text.as_bytes(), Some("Q"), &OperationVariant::default()).map(drop);
        let elapsed = started.elapsed();
        println!(
            "{} bytes: {elapsed:?} {:?}",
            text.len(),
            result.as_ref().err().map(ToString::to_string)
        );
        assert!(elapsed < TIME_MAX, "{elapsed:?}");
        result
    })
}

#[track_caller]
fn refused(text: String, message: &str) {
    match prepare(text) {
        Ok(()) => panic!("it was accepted"),
        Err(error) => assert!(error.to_string().contains(message), "{error}"),
    }
}

const SELECTIONS: &str = "limit of 100000 selections";
const DEPTH: &str = "limit of 100 levels of nesting";

#[test]
fn fragments_that_double() {
    let mut text = "query Q { node(id: 1) { ...F0 } } fragment F60 on Node { id }".to_owned();
    for index in 0..60 {
        let next = index + 1;
        let _ = write!(text, " fragment F{index} on Node {{ ...F{next} ...F{next} }}");
    }
    refused(text, SELECTIONS);
}

#[test]
fn fragments_that_double_under_different_keys() {
    let mut text = "query Q { me { ...F0 } } fragment F30 on User { id }".to_owned();
    for index in 0..30 {
        let next = index + 1;
        let _ = write!(
            text,
            " fragment F{index} on User {{ friends {{ ...F{next} }} team {{ members {{ ...F{next} }} }} }}"
        );
    }
    refused(text, SELECTIONS);
}

#[test]
fn a_second_fragment_of_the_same_name_hides_nothing() {
    let mut text = "query Q { node(id: 1) { ...F0 } } fragment F60 on Node { id }".to_owned();
    for index in 0..60 {
        let next = index + 1;
        let _ = write!(text, " fragment F{index} on Node {{ ...F{next} ...F{next} }}");
    }
    for index in 0..60 {
        let _ = write!(text, " fragment F{index} on Node {{ id }}");
    }
    refused(text, SELECTIONS);
}

/// A field of an interface is merged with the same field of each object type beside it, at each
/// level.
#[test]
fn interfaces_beside_their_types() {
    fn level(depth: usize, out: &mut String) {
        if depth == 0 {
            return out.push_str("id ");
        }
        out.push_str("parent { ");
        level(depth - 1, out);
        out.push_str("} ");
        for ty in ["User", "Bot"] {
            let chain = format!("{}id{}", "parent { ".repeat(depth), " }".repeat(depth));
            let key = if ty == "User" { "name" } else { "version" };
            let chain = chain.replacen("id", key, 1);
            let chain = if ty == "User" { chain } else { chain.replace("version", "__typename") };
            let _ = write!(out, "... on {ty} {{ {chain} }} ");
        }
    }
    let mut text = "query Q { node(id: 1) { ".to_owned();
    level(24, &mut text);
    text.push_str("} }");
    refused(text, SELECTIONS);
}

#[test]
fn long_chains_of_fragments() {
    for length in [90, 200, 400, 1_500] {
        let mut text = format!("query Q {{ me {{ ...F0 }} }} fragment F{length} on User {{ id }}");
        for index in 0..length {
            let _ = write!(text, " fragment F{index} on User {{ ...F{} }}", index + 1);
        }
        let result = prepare(text);
        assert_eq!(result.is_ok(), length == 90, "{length}: {result:?}");
    }
}

#[test]
fn chains_of_fragments_from_the_end() {
    // Each fragment is shallow by itself.
    let mut text = "query Q { me { ".to_owned();
    for index in (0..400).rev() {
        let _ = write!(text, "...F{index} ");
    }
    text.push_str("} } fragment F400 on User { id }");
    for index in 0..400 {
        let _ = write!(text, " fragment F{index} on User {{ ...F{} }}", index + 1);
    }
    refused(text, DEPTH);
}

#[test]
fn cycles_of_fragments() {
    refused(
        "query Q { me { ...A } } fragment A on User { friends { ...B } } fragment B on User { ...A }".into(),
        "fragment `A` spreads itself, directly or through others",
    );
    // Each fragment leads back to all others, and many operations start everywhere.
    let mut text = "query Q { me { ...H } }".to_owned();
    let mut hub = "fragment H on User { ".to_owned();
    for index in 0..800 {
        let _ = write!(text, " fragment F{index} on User {{ ...H }}");
        let _ = write!(hub, "...F{index} ");
    }
    let _ = write!(text, " {hub} }}");
    for index in 0..200 {
        let _ = write!(text, " query Q{index} {{ me {{ ...H }} }}");
    }
    refused(text, "fragment `H` spreads itself, directly or through others");
}

#[test]
fn many_operations_over_many_fragments() {
    let mut text = "query Q { me { id } } fragment A on User { ".to_owned();
    for index in 0..700 {
        let _ = write!(text, "...F{index} ");
    }
    text.push('}');
    for index in 0..700 {
        let _ = write!(text, " fragment F{index} on User {{ id }}");
    }
    for index in 0..900 {
        let _ = write!(text, " query Q{index} {{ me {{ ...A }} }}");
    }
    refused(text, SELECTIONS);
}

#[test]
fn nested_selection_sets() {
    for (open, levels) in
        [("... {", 240), ("... {", 2_000), ("... on Node {", 240), ("parent {", 99)]
    {
        let ok = levels < 1_000;
        let text = format!(
            "query Q {{ node(id: 1) {{ {} id {} }} }}",
            open.repeat(levels),
            "}".repeat(levels)
        );
        let result = prepare(text);
        assert_eq!(
            result.is_ok(),
            ok && (open != "parent {" || levels < 99),
            "{open} {levels}: {result:?}"
        );
    }
}

#[test]
fn nested_selection_sets_with_a_high_limit() {
    for levels in [120, 240, 400] {
        let text = format!(
            "query Q {{ node(id: 1) {{ {} id {} }} }}",
            "parent {".repeat(levels),
            "}".repeat(levels)
        );
        let limits = Limits { depth: 1_000, ..Limits::default() };
        let result = prepare_within(text, limits);
        assert_eq!(result.is_ok(), levels == 120, "{levels}: {result:?}");
    }
}

#[test]
fn nested_values_and_types() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("[{a: ", "}]")] {
        for levels in [60, 120, 240, 490, 5_000] {
            let value = format!("{}1{}", open.repeat(levels), close.repeat(levels));
            let ok = levels * open.matches(['[', '{']).count() <= 128;
            for text in [
                format!("query Q {{ echo(any: {value}) }}"),
                format!("query Q($a: Any = {value}) {{ echo(any: $a) }}"),
            ] {
                let result = prepare(text);
                assert_eq!(result.is_ok(), ok, "{open} {levels}: {result:?}");
            }
        }
    }
    for levels in [100, 240, 490, 5_000] {
        let ty = format!("{}Int{}", "[".repeat(levels), "]".repeat(levels));
        let result = prepare(format!("query Q($a: {ty}) {{ echo(any: {{a: $a}}) }}"));
        assert_eq!(result.is_ok(), levels <= 240, "{levels}: {result:?}");
    }
}

#[test]
fn many_of_everything() {
    let within = |text: String| prepare(text);
    // Fields of one key.
    within(format!("query Q {{ me {{ {} }} }}", "id ".repeat(14_900))).unwrap();
    within(format!("query Q {{ me {{ {} }} }}", "team { id } ".repeat(3_700))).unwrap();
    // Fragments on types that overlap.
    let spreads = "... on User { id } ... on Node { name } ... on Hit { __typename } ".repeat(700);
    within(format!("query Q {{ node(id: 1) {{ {spreads} }} }}")).unwrap();
    // Conditions.
    let mut text = "query Q(".to_owned();
    text.extend((0..1_000).map(|index| format!("$v{index}: Boolean! ")));
    text.push_str(") { me { ");
    text.extend((0..1_000).map(|index| format!("id @skip(if: $v{index}) ")));
    text.push_str("id } }");
    within(text).unwrap();
    // Values.
    within(format!("query Q {{ echo(any: [{}]) }}", "1 ".repeat(14_900))).unwrap();
    within(format!("query Q {{ echo(any: {{ {} }}) }}", "a: 1 ".repeat(4_000))).unwrap_err();
    // Errors.
    refused(format!("query Q {{ me {{ id {} }} }}", "nope ".repeat(14_900)), "nope");
    refused(format!("query Q {{ me {{ id {} }} }}", "@nope ".repeat(7_000)), "nope");
    refused(format!("query Q {{ me {{ id }} }} {}", "}".repeat(14_000)), "syntax error");
    refused(format!("query Q {{ me {{ id }} }} {}", "query Q { me { id } } ".repeat(1_800)), "Q");
    refused(",".repeat(2 << 20), "limit of 15000 tokens");
    within(format!("query Q {{ me {{ id }} }} #{}", "x".repeat(2 << 20))).unwrap();
}

#[test]
fn long_arguments_that_are_compared_repeatedly() {
    let list = "1 ".repeat(2_000);
    let mut text = format!(
        "query Q {{ me {{ ...F0 }} }} fragment F13 on User {{ name friends {{ id }} team {{ id }} }} \
         fragment L on Query {{ sum(values: [{list}], really: 1) sum(values: [{list}], really: 1) }}"
    );
    text = text.replacen("{ me", "{ ...L me", 1);
    for index in 0..13 {
        let next = index + 1;
        let _ = write!(
            text,
            " fragment F{index} on User {{ friends {{ ...F{next} }} team {{ members {{ ...F{next} }} }} }}"
        );
    }
    // Sixteen thousand merged selection sets are within the limit.
    prepare(text).unwrap();
}
