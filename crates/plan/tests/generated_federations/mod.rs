//! Generated federations for tests and benches: wide ones with a best plan that is known by construction, and a large
//! one with a supergraph that takes time to load. The same seed generates the same federation.
#![allow(dead_code, reason = "tests and benches use different parts")]

use std::fmt::Write as _;

use federations::Random;

const SUBGRAPHS: usize = 7;
/// The number of entity types: few enough for the aliases of one request, because equal selections on one type share an
/// alias.
const TYPES: usize = 6;

/// A federation, an operation, and the cost of its best plan.
pub(crate) struct Wide {
    pub(crate) sdl: String,
    pub(crate) operation: String,
    pub(crate) requests: usize,
    pub(crate) waves: u32,
}

/// Returns the beginning of an SDL: `count` subgraphs, and the query type up to its fields.
pub(crate) fn subgraphs_and_query(count: usize) -> String {
    let mut sdl = String::from("enum join__Graph {");
    for s in 0..count {
        let _ = write!(sdl, " S{s} @join__graph(name: \"s{s}\", url: \"http://s{s}\")");
    }
    sdl.push_str(" }\ntype Query");
    for s in 0..count {
        let _ = write!(sdl, " @join__type(graph: S{s})");
    }
    sdl
}

/// Generates a federation in which every type has a key in all seven subgraphs. Each `link` field is resolved
/// everywhere, each `hop` field by one subgraph. Leaves 0 to 6 of a type belong to one subgraph each, the others to
/// several.
///
/// The operation follows three hops of different subgraphs, one below the other, and selects all leaves of every type
/// on the way. So the first four waves have one request at least (the root and the hops), and below the last hop six
/// subgraphs that do not have the object yet have leaves of their own: ten requests in five waves, and no plan has
/// fewer. Ten are sufficient, because leaves further up may wait for the fifth wave.
pub(crate) fn wide(seed: u64, lines: usize) -> Wide {
    let mut random = Random::new(seed);
    let mut sdl = subgraphs_and_query(SUBGRAPHS);
    sdl.push_str(" {\n  start: T0 @join__field(graph: S0)\n}\n");
    // hop_of[h]: the subgraph that resolves all fields `hop{h}`; hop 0 leads on from the root's.
    let mut hop_of: Vec<usize> = (1..SUBGRAPHS).collect();
    for at in (1..hop_of.len()).rev() {
        hop_of.swap(at, random.below(at + 1));
    }
    let mut links = Vec::new();
    for t in 0..TYPES {
        let _ = write!(sdl, "type T{t}");
        for s in 0..SUBGRAPHS {
            let _ = write!(sdl, " @join__type(graph: S{s}, key: \"id\")");
        }
        sdl.push_str(" {\n  id: ID!\n");
        for leaf in 0..10 {
            let _ = write!(sdl, "  leaf{leaf}: Int");
            let owner = (t + leaf) % SUBGRAPHS;
            let _ = write!(sdl, " @join__field(graph: S{owner})");
            if leaf >= SUBGRAPHS {
                let other = (owner + 1 + random.below(SUBGRAPHS - 1)) % SUBGRAPHS;
                let _ = write!(sdl, " @join__field(graph: S{other})");
            }
            sdl.push('\n');
        }
        let mut to = Vec::new();
        for link in 0..4 {
            to.push(random.below(TYPES));
            let list = random.one_in(2);
            let (open, close) = if list { ("[", "!]") } else { ("", "") };
            let _ = writeln!(sdl, "  link{link}: {open}T{}{close}", to[link]);
        }
        links.push(to);
        for (hop, by) in hop_of.iter().take(3).enumerate() {
            let target = random.below(TYPES);
            links[t].push(target);
            let _ = writeln!(sdl, "  hop{hop}: [T{target}!] @join__field(graph: S{})", by);
        }
        sdl.push_str("}\n");
    }
    // A chain down the hops, with trees of links on every level until the operation is long enough.
    let mut operation = Text { out: String::from("{\n  start {\n"), lines: 2, indent: 2 };
    let per_level = (lines / 4).saturating_sub(20);
    let mut ty = 0;
    for level in 0..4 {
        let end = operation.lines + per_level;
        operation.leaves();
        let mut branch = 0;
        while operation.lines < end {
            operation.tree(&links, ty, branch % 4, end, &mut random, &format!("b{branch}"));
            branch += 1;
        }
        if level < 3 {
            operation.line(&format!("hop{level} {{"));
            operation.indent += 1;
            ty = links[ty][4 + level];
        }
    }
    for _ in 0..5 {
        operation.indent = operation.indent.saturating_sub(1);
        operation.line("}");
    }
    Wide { sdl, operation: operation.out, requests: 10, waves: 5 }
}

/// The number of subgraphs of [`overlapping`], and the number of those that the second wave must contain.
const OVERLAPPING: usize = 8;
const SECOND_WAVE: usize = 4;

/// Generates one self-referential type with fields in eight overlapping subgraphs.
///
/// Subgraph 0 alone has the root field. Each of the subgraphs 1 to 4 has a link of its own, which the operation follows
/// from the root's node, and each of all eight has a leaf of its own, which is selected on every node. So below the
/// link of subgraph 1 the leaves of the seven others come in the third wave at the earliest, and below that of subgraph
/// 2 that of subgraph 1: no plan has fewer than 1, 4 and 8 requests in three waves. The other links and leaves are in
/// several subgraphs, including those that the second wave need not contain, and every path of the operation can be
/// followed in subgraph 0 first and then in one of 1 to 4.
pub(crate) fn overlapping(seed: u64, lines: usize) -> Wide {
    let mut random = Random::new(seed);
    let mut sdl = subgraphs_and_query(OVERLAPPING);
    sdl.push_str(" {\n  start: Node @join__field(graph: S0)\n}\ntype Node");
    for s in 0..OVERLAPPING {
        let _ = write!(sdl, " @join__type(graph: S{s}, key: \"id\")");
    }
    sdl.push_str(" {\n  id: ID!\n");
    let mut field = |name: String, ty: &str, by: &[bool]| {
        let _ = write!(sdl, "  {name}: {ty}");
        for s in (0..OVERLAPPING).filter(|&s| by[s]) {
            let _ = write!(sdl, " @join__field(graph: S{s})");
        }
        sdl.push('\n');
    };
    let mut links: Vec<Vec<bool>> = Vec::new();
    for link in 0..16 {
        let by = match link {
            0..SECOND_WAVE => (0..OVERLAPPING).map(|s| s == link + 1).collect(),
            // Two links are in subgraph 0, the rest in one of 1 to 4; all are in other subgraphs as well.
            _ => {
                let owner = if link < SECOND_WAVE + 2 { 0 } else { 1 + link % SECOND_WAVE };
                (0..OVERLAPPING).map(|s| s == owner || random.one_in(3)).collect::<Vec<_>>()
            }
        };
        let ty = if random.one_in(2) { "Node" } else { "[Node]" };
        field(format!("n{link}"), ty, &by);
        links.push(by);
    }
    for leaf in 0..14 {
        let by: Vec<bool> = match leaf {
            0..OVERLAPPING => (0..OVERLAPPING).map(|s| s == leaf).collect(),
            _ => {
                let owner = random.below(OVERLAPPING);
                (0..OVERLAPPING).map(|s| s == owner || random.one_in(3)).collect()
            }
        };
        field(format!("f{leaf}"), "Int", &by);
    }
    sdl.push_str("}\n");
    let mut operation = Text { out: String::from("{\n  start {\n"), lines: 2, indent: 2 };
    operation.node_leaves();
    for link in 0..SECOND_WAVE {
        operation.nodes(&links, link, link + 1, lines * (link + 1) / 6, &mut random);
    }
    // Links of other subgraphs follow below links of subgraph 0.
    let mut level = 0;
    while operation.lines < lines {
        operation.line(&format!("a{level}: n{} {{", SECOND_WAVE + level % 2));
        operation.indent += 1;
        operation.node_leaves();
        let link = SECOND_WAVE + 2 + random.below(links.len() - SECOND_WAVE - 2);
        let end = operation.lines + lines / 12;
        operation.nodes(&links, link, 1 + link % SECOND_WAVE, end, &mut random);
        operation.indent -= 1;
        operation.line("}");
        level += 1;
    }
    operation.indent -= 1;
    operation.line("}");
    operation.indent -= 1;
    operation.line("}");
    Wide { sdl, operation: operation.out, requests: 1 + SECOND_WAVE + OVERLAPPING, waves: 3 }
}

struct Text {
    out: String,
    lines: usize,
    indent: usize,
}

impl Text {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "  ".repeat(self.indent));
        self.lines += 1;
    }

    fn leaves(&mut self) {
        self.line("id");
        for leaf in 0..10 {
            self.line(&format!("leaf{leaf}"));
        }
    }

    fn node_leaves(&mut self) {
        self.line("id");
        for leaf in 0..14 {
            self.line(&format!("f{leaf}"));
        }
    }

    /// Selects the nodes below `link`, all of which `subgraph` can follow alone.
    fn nodes(
        &mut self,
        links: &[Vec<bool>],
        link: usize,
        subgraph: usize,
        end: usize,
        random: &mut Random,
    ) {
        self.line(&format!("n{link} {{"));
        self.indent += 1;
        self.node_leaves();
        let all = links.iter().enumerate().filter(|(_, by)| by[subgraph]).map(|(link, _)| link);
        for next in all.collect::<Vec<_>>() {
            if self.lines < end && self.indent < 8 && random.one_in(2) {
                self.nodes(links, next, subgraph, end, random);
            }
        }
        self.indent -= 1;
        self.line("}");
    }

    fn tree(
        &mut self,
        links: &[Vec<usize>],
        ty: usize,
        link: usize,
        end: usize,
        random: &mut Random,
        alias: &str,
    ) {
        self.line(&format!("{alias}: link{link} {{"));
        self.indent += 1;
        self.leaves();
        let below = links[ty][link];
        if self.lines < end && self.indent < 10 {
            for branch in 0..1 + random.below(2) {
                self.tree(links, below, random.below(4), end, random, &format!("b{branch}"));
            }
        }
        self.indent -= 1;
        self.line("}");
    }
}

/// Generates 200 subgraphs and 2,000 types of ten fields; most types have a key in three subgraphs.
pub(crate) fn large() -> String {
    let mut random = Random::new(7);
    let mut sdl = String::from("enum join__Graph {\n");
    for s in 0..200 {
        let _ = writeln!(sdl, "  S{s} @join__graph(name: \"s{s}\", url: \"http://s{s}\")");
    }
    sdl.push_str("}\ntype Query");
    for s in 0..200 {
        let _ = write!(sdl, " @join__type(graph: S{s})");
    }
    sdl.push_str(" {\n");
    for t in 0..200 {
        let _ = writeln!(sdl, "  t{t}: T{t} @join__field(graph: S{t})");
    }
    sdl.push_str("}\n");
    for t in 0..2000 {
        let at = [t % 200, (t * 7 + 1) % 200, (t * 13 + 2) % 200];
        let _ = write!(sdl, "type T{t}");
        let mut seen: Vec<usize> = Vec::new();
        for s in at {
            if !seen.contains(&s) {
                let _ = write!(sdl, " @join__type(graph: S{s}, key: \"id\")");
                seen.push(s);
            }
        }
        sdl.push_str(" {\n  id: ID!\n");
        for field in 0..7 {
            let by = seen[random.below(seen.len())];
            let _ = writeln!(sdl, "  f{field}: String @join__field(graph: S{by})");
        }
        for link in 0..2 {
            let by = seen[random.below(seen.len())];
            let to = random.below(2000);
            let _ =
                writeln!(sdl, "  link{link}(first: Int = 10): [T{to}!] @join__field(graph: S{by})");
        }
        sdl.push_str("}\n");
    }
    sdl
}
