//! Random operations over the fixtures' supergraphs: planning never panics, and every plan is sound and gives the
//! response of one server with all the data. A failure names the seed.

use std::{fmt::Write as _, path::Path, sync::Arc};

use graph::{Supergraph, TypeId, TypeKind};
use prepare::{PrepareError, PrepareSettings, Preparer};

mod oracle;

/// The number of operations for each supergraph and root.
const SEEDS: u64 = 100;

/// The maximum nesting depth of selections.
const DEPTH_MAX: u32 = 5;

struct Random(u64);

impl Random {
    /// Returns a number below `bound` (xorshift64*).
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

fn selection_set(graph: &Supergraph, on: TypeId, depth: u32, random: &mut Random) -> String {
    let ty = graph.ty(on);
    let mut out = String::from("{ ");
    if random.one_in(6) || ty.kind == TypeKind::Union {
        out.push_str("__typename ");
    }
    let fields: Vec<_> = ty.fields.iter().filter(|&&f| !graph.field(f).inaccessible).collect();
    let count = if fields.is_empty() { 0 } else { 1 + random.below(4) };
    for _ in 0..count {
        let field = graph.field(*fields[random.below(fields.len())]);
        let below = field.ty.named();
        let is_composite = graph.ty(below).kind.is_composite();
        if is_composite && depth == 0 {
            out.push_str("__typename ");
            continue;
        }
        let mut arguments = String::new();
        let mut digest = 0;
        for argument in &field.arguments {
            if !argument.ty.ends_with('!') && random.one_in(2) {
                continue;
            }
            let value = match argument.ty.trim_end_matches('!') {
                "Int" => ["1", "2"][random.below(2)],
                "Boolean" => "true",
                "ID" | "String" => ["\"x\"", "\"y\""][random.below(2)],
                "Currency" => ["EUR", "USD"][random.below(2)],
                _ => continue,
            };
            digest = digest * 31 + value.bytes().map(u32::from).sum::<u32>();
            let _ = write!(
                arguments,
                "{}{}: {value}",
                if arguments.is_empty() { "" } else { ", " },
                argument.name
            );
        }
        // If the key determines the field and its arguments, selections always merge.
        let parent = &ty.name;
        match (arguments.is_empty(), random.one_in(4)) {
            (true, false) => {}
            // Names that the planner uses internally; operations that become invalid by them are skipped.
            _ if random.one_in(4) => {
                let taken = graph.field(*fields[random.below(fields.len())]);
                let _ = write!(out, "{}: ", ["__s0", "id", &*taken.name][random.below(3)]);
            }
            _ => {
                let _ = write!(out, "{parent}_{}_{digest}: ", field.name);
            }
        }
        out.push_str(&field.name);
        if !arguments.is_empty() {
            let _ = write!(out, "({arguments})");
        }
        match random.below(8) {
            0 => out.push_str(" @include(if: $x)"),
            1 => out.push_str(" @skip(if: $y)"),
            _ => {}
        }
        out.push(' ');
        if is_composite {
            out.push_str(&selection_set(graph, below, depth - 1, random));
        }
    }
    if ty.kind.is_abstract() {
        for &member in &ty.possible {
            if !graph.ty(member).inaccessible && random.one_in(2) && depth > 0 {
                let inner = selection_set(graph, member, depth - 1, random);
                let _ = write!(out, "... on {} {inner}", graph.ty(member).name);
            }
        }
    }
    if out.len() <= 2 {
        out.push_str("__typename ");
    }
    out.push_str("} ");
    out
}

/// Selections that use both variables without effect.
fn uses(keyword: &str) -> &'static str {
    match keyword {
        "subscription" => "",
        _ => "__typename @include(if: $x) also: __typename @skip(if: $y) ...",
    }
}

/// Generates a root field of a subscription.
fn one_field(graph: &Supergraph, root: TypeId, random: &mut Random) -> String {
    let fields = &graph.ty(root).fields;
    let field = graph.field(fields[random.below(fields.len())]);
    let arguments = if field.arguments.is_empty() { "" } else { "(id: \"x\")" };
    let below = selection_set(graph, field.ty.named(), DEPTH_MAX, random);
    let uses = "__typename @include(if: $x) also: __typename @skip(if: $y)";
    format!("root: {}{arguments} {{ {uses} ... {below} }}", field.name)
}

#[test]
fn random_operations_get_sound_plans() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files: Vec<_> = std::fs::read_dir(fixtures)
        .expect("fixtures are in order")
        .map(|entry| entry.expect("fixtures are in order").path().join("supergraph.graphql"))
        .filter(|path| path.exists())
        .collect();
    files.push(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/federation-benchmark/supergraph.graphql"),
    );
    files.sort();
    let (mut planned, mut refused) = (0_u32, 0_u32);
    for file in files {
        let sdl = std::fs::read_to_string(&file).expect("fixtures are in order");
        let graph = Arc::new(
            Supergraph::from_sdl(&sdl, "supergraph.graphql").expect("fixtures are in order"),
        );
        let checker = soundness::Checker::new(graph.clone());
        let preparer = Preparer::new(graph.clone(), 1, PrepareSettings::default());
        let roots = [
            ("query", Some(graph.query)),
            ("mutation", graph.mutation),
            ("subscription", graph.subscription),
        ];
        for (keyword, root) in roots.into_iter().filter_map(|(k, root)| Some((k, root?))) {
            for seed in 1..=SEEDS {
                let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let body = match keyword {
                    "subscription" => one_field(&graph, root, &mut random),
                    _ => selection_set(&graph, root, DEPTH_MAX, &mut random),
                };
                let text =
                    format!("{keyword}($x: Boolean!, $y: Boolean!) {{ {} {body} }}", uses(keyword));
                match preparer.prepare_now(text.as_bytes(), None) {
                    Ok(prepared) => {
                        println!("{} seed {seed}: {text}", file.display());
                        assert_eq!(checker.check(&prepared.operation, &prepared.plan), Ok(()));
                        for variables in
                            [[false, false], [false, true], [true, false], [true, true]]
                        {
                            oracle::check(&graph, &prepared.operation, &prepared.plan, &variables);
                        }
                        planned += 1;
                    }
                    Err(PrepareError::Plan(plan::PlanError::Unreachable(_))) => refused += 1,
                    // Selections of different members may disagree about nulls; such operations are invalid.
                    Err(PrepareError::Validation(_)) => {}
                    Err(other) => panic!("{} seed {seed}: {other}\n{text}", file.display()),
                }
            }
        }
    }
    println!("{planned} planned, {refused} refused");
    assert!(planned > 1000, "most operations can be planned: {planned}, not {refused}");
}
