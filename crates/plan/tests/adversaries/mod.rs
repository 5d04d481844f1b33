//! Operations within the default limits that are designed to cost as much as possible, each over a supergraph that
//! increases the cost. Attackers can send the same operations.

use std::fmt::Write as _;

/// An operation and its supergraph.
pub(crate) struct Adversary {
    pub(crate) name: &'static str,
    pub(crate) sdl: String,
    pub(crate) operation: String,
}

/// Returns all adversarial operations.
pub(crate) fn all() -> Vec<Adversary> {
    vec![
        Adversary { name: "deep", sdl: web(7, 12), operation: deep(97) },
        Adversary { name: "wide", sdl: web(7, 12), operation: wide(99) },
        Adversary { name: "branching", sdl: web(7, 12), operation: branching(3, 5) },
        Adversary { name: "doubling_fragments", sdl: web(7, 12), operation: doubling(10) },
        Adversary { name: "tripling_fragments", sdl: web(20, 12), operation: tripling(6) },
        Adversary { name: "interface_tower", sdl: tower(6), operation: parents(60) },
        Adversary { name: "high_interface_tower", sdl: tower(60), operation: parents(95) },
        Adversary { name: "broad_interface_tower", sdl: tower(300), operation: kinds(300, 12) },
        Adversary { name: "requires_chain", sdl: chain(90), operation: chained(90) },
        Adversary { name: "requires_chains_apart", sdl: chain(90), operation: apart(90) },
        Adversary { name: "many_conditions", sdl: web(7, 12), operation: conditions(850) },
        Adversary { name: "nested_conditions", sdl: web(7, 12), operation: either(12) },
    ]
}

fn graphs(count: usize) -> String {
    let mut sdl = String::from("enum join__Graph {");
    for s in 0..count {
        let _ = write!(sdl, " S{s} @join__graph(name: \"s{s}\", url: \"http://s{s}\")");
    }
    sdl.push_str(" }\n");
    sdl
}

fn in_all(count: usize, key: &str) -> String {
    (0..count).map(|s| format!(" @join__type(graph: S{s}{key})")).collect()
}

/// Builds a supergraph in which every type has a key in every subgraph and leads to others; each leaf is in one to
/// three subgraphs.
fn web(subgraphs: usize, types: usize) -> String {
    let mut sdl = graphs(subgraphs);
    let root = in_all(subgraphs, "");
    let _ = writeln!(sdl, "type Query{root} {{ start: T0 @join__field(graph: S0) }}");
    for t in 0..types {
        let _ = write!(sdl, "type T{t}{} {{\n  id: ID!\n", in_all(subgraphs, ", key: \"id\""));
        for leaf in 0..10 {
            let _ = write!(sdl, "  leaf{leaf}: Int");
            for copy in 0..=leaf % 3 {
                let by = (t + leaf + 2 * copy) % subgraphs;
                let _ = write!(sdl, " @join__field(graph: S{by})");
            }
            sdl.push('\n');
        }
        for link in 0..3 {
            let to = (t * 5 + link + 1) % types;
            let _ = writeln!(sdl, "  link{link}: T{to}");
            let (to, by) = ((t + link + 1) % types, (t + link) % subgraphs);
            let _ = writeln!(sdl, "  list{link}: [T{to}!] @join__field(graph: S{by})");
        }
        for (twin, name) in ["second", "third"].iter().enumerate() {
            let (to, by) = ((t + 1) % types, (t + twin + 3) % subgraphs);
            let _ = writeln!(sdl, "  {name}: T{to} @join__field(graph: S{by})");
        }
        sdl.push_str("}\n");
    }
    sdl
}

fn deep(levels: usize) -> String {
    let mut text = String::from("{ start ");
    for level in 0..levels {
        let _ = write!(text, "{{ leaf{} link{} ", level % 10, level % 3);
    }
    format!("{text}{{ id }}{} }}", " }".repeat(levels))
}

const LEAVES: &str = "leaf0 leaf1 leaf2 leaf3 leaf4 leaf5 leaf6 leaf7 leaf8 leaf9";

fn wide(aliases: usize) -> String {
    let mut text = String::from("{ start {");
    for alias in 0..aliases {
        let (kind, number) = (["link", "list"][alias % 2], alias % 3);
        let _ = write!(
            text,
            " a{alias}: {kind}{number} {{ {LEAVES} link0 {{ {LEAVES} }} list1 {{ {LEAVES} }} }}"
        );
    }
    text.push_str(" } }");
    text
}

/// Selects all six links of each type, recursively.
fn branching(depth: usize, seed: usize) -> String {
    fn level(depth: usize, seed: usize) -> String {
        let mut text = format!("{{ leaf{} leaf{}", seed % 10, (seed + 3) % 10);
        if depth > 0 {
            for branch in 0..6 {
                let kind = ["link", "list"][branch % 2];
                let below = level(depth - 1, seed * 7 + branch);
                let _ = write!(text, " {kind}{} {below}", branch / 2);
            }
        }
        text + " }"
    }
    format!("{{ start {} }}", level(depth, seed))
}

/// Builds a chain of fragments, each of which spreads the next one twice, with different leaves each time.
fn doubling(levels: usize) -> String {
    let mut text = String::from("query Q { start { ...F0 } }");
    for level in 0..levels {
        let (from, next) = (level % 12, level + 1);
        let _ = write!(
            text,
            " fragment F{level} on T{from} {{ leaf{} list0 {{ ...F{next} }} second {{ ...F{next} leaf{} }} }}",
            level % 10,
            (level + 4) % 10
        );
    }
    let _ = write!(text, " fragment F{levels} on T{} {{ {LEAVES} }}", levels % 12);
    text
}

fn tripling(levels: usize) -> String {
    let mut text = String::from("query Q { start { ...F0 } }");
    for level in 0..levels {
        let (from, next) = (level % 12, level + 1);
        let _ = write!(
            text,
            " fragment F{level} on T{from} {{ leaf{} list0 {{ ...F{next} }} second {{ ...F{next} }} third {{ leaf2 ...F{next} }} }}",
            level % 10,
        );
    }
    let _ = write!(text, " fragment F{levels} on T{} {{ leaf0 leaf1 leaf2 }}", levels % 12);
    text
}

/// Builds a supergraph with an interface whose field `parent` exists only on the members in the subgraph that leads to
/// it: it must be selected for each member, and below it for each member again. The other subgraph has the names.
fn tower(members: usize) -> String {
    let mut sdl = graphs(2);
    sdl.push_str("type Query @join__type(graph: S0) @join__type(graph: S1) { node: Node @join__field(graph: S0) }\n");
    sdl.push_str(
        "interface Node @join__type(graph: S0) @join__type(graph: S1) {\n  id: ID!\n  parent: Node @join__field(graph: S1)\n  name: String @join__field(graph: S1)\n}\n",
    );
    for m in 0..members {
        let _ = writeln!(
            sdl,
            "type M{m} implements Node @join__implements(graph: S0, interface: \"Node\") @join__implements(graph: S1, interface: \"Node\") @join__type(graph: S0, key: \"id\") @join__type(graph: S1, key: \"id\") {{\n  id: ID!\n  parent: Node\n  name: String @join__field(graph: S1)\n  own{m}: Int @join__field(graph: S{})\n}}",
            m % 2
        );
    }
    sdl
}

fn parents(levels: usize) -> String {
    format!("{{ node {{ {} id name {} }} }}", "parent { name ".repeat(levels), "}".repeat(levels))
}

/// Selects a fragment for each member, several levels deep.
fn kinds(members: usize, levels: usize) -> String {
    let mut inside = String::from("id");
    for level in 0..levels {
        let mut all = String::new();
        for m in 0..members / levels {
            let m = level * (members / levels) + m;
            let _ = write!(all, " ... on M{m} {{ own{m} name }}");
        }
        inside = format!("{all} parent {{ {inside} }}");
    }
    format!("{{ node {{ {inside} }} }}")
}

/// Builds a supergraph in which each field requires the previous one, and neighbours are in different subgraphs.
fn chain(length: usize) -> String {
    let mut sdl = graphs(5);
    let _ = writeln!(sdl, "type Query{} {{ item: Item @join__field(graph: S0) }}", in_all(5, ""));
    let _ = write!(sdl, "type Item{} {{\n  id: ID!\n", in_all(5, ", key: \"id\""));
    sdl.push_str("  f0: Int @join__field(graph: S0) @join__field(graph: S1, external: true)\n");
    for at in 1..length {
        let (by, next) = (at % 5, (at + 1) % 5);
        let before = at - 1;
        let _ = writeln!(
            sdl,
            "  f{at}: Int @join__field(graph: S{by}, requires: \"f{before}\") @join__field(graph: S{next}, external: true)"
        );
    }
    sdl.push_str("}\n");
    sdl
}

fn chained(length: usize) -> String {
    format!("{{ item {{ f{} }} }}", length - 1)
}

/// Selects the whole chain at many positions, starting at a different field each time.
fn apart(length: usize) -> String {
    let mut text = String::from("{");
    for at in 0..90 {
        let _ = write!(text, " a{at}: item {{ f{} f{} }}", at % length, (at * 7) % length);
    }
    text + " }"
}

fn conditions(count: usize) -> String {
    let mut text = String::from("query Q(");
    text.extend((0..count).map(|at| format!("$v{at}: Boolean! ")));
    text.push_str(") { start {");
    for at in 0..count {
        let (directive, leaf) = (["skip", "include"][at % 2], at % 10);
        let _ = write!(text, " link0 @{directive}(if: $v{at}) {{ leaf{leaf} }}");
    }
    text.push_str(" } }");
    text
}

/// Selects each field under either of two conditions, and its children likewise, so that the combinations of conditions
/// double with each level.
fn either(levels: usize) -> String {
    let mut text = String::from("query Q(");
    text.extend((0..levels).map(|at| format!("$a{at}: Boolean! $b{at}: Boolean! ")));
    text.push_str(") { start { ...F0 } }");
    for level in 0..levels {
        let (from, next) = (level % 12, level + 1);
        let _ = write!(
            text,
            " fragment F{level} on T{from} {{ list0 @include(if: $a{level}) {{ ...F{next} }} list0 @include(if: $b{level}) {{ leaf{} ...F{next} }} }}",
            level % 10
        );
    }
    let _ = write!(text, " fragment F{levels} on T{} {{ leaf0 leaf1 leaf2 }}", levels % 12);
    text
}
