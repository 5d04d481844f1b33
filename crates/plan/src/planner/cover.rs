//! The smallest set of requests for a whole operation, as a set cover. A request is a subgraph and a wave,
//! and all positions of the operation share it, so choosing subgraphs position by position finds too many.
//! Here the operation is a tree of bit masks, small enough to check a set of requests in microseconds:
//! for each position, in which waves may which subgraph get the object so that everything below is had in
//! time? The set that is found is a proposal. The solver carries it out exactly, or it is dropped; so the
//! model may leave out what is rare (`@provides`, several subgraphs that carry one list, the inside of
//! required fields), and gives up on interface objects.

use std::rc::Rc;

use foldhash::HashMap;
use graph::{FieldSet, FieldSetItem, SubgraphId, SubgraphKind, SubgraphSet, Supergraph, TypeId};

use super::{
    ration::Ration,
    solve::Solver,
    tree::{Collected, Parts, Wanted, WantedTarget},
};

/// Subgraphs that a model may have: one bit each.
const SUBGRAPHS_MAX: usize = 64;

/// Waves that a model may have. Longer chains are left to the solver alone.
const WAVES_MAX: usize = 12;

/// Positions and fields that a model may have.
const FIELDS_MAX: usize = 40_000;

/// Operations on masks up to which one search goes: some milliseconds.
const WORK_MAX: u64 = 4_000_000;

/// Operations on masks that take as long as a step of the solver.
const WORK_IN_STEP: u64 = 16;

/// Orders of leaving out requests that are tried, beside those by wave.
const SHUFFLES: u64 = 6;

/// A set of subgraphs of the model.
type Mask = u64;

/// An operation as positions and masks.
pub(super) struct Cover {
    /// The subgraphs by bit.
    subgraphs: Vec<SubgraphId>,
    /// Event subgraphs have their payload in wave 0.
    events: Mask,
    types: Vec<JumpType>,
    /// Children come before their parents.
    nodes: Vec<Node>,
    /// The root fields.
    roots: Vec<Field>,
    /// Masks looked at, counted over all checks.
    work: u64,
}

/// The jumps between subgraphs for objects of one type.
struct JumpType {
    /// Subgraphs from which keys of the object lead to the same subgraphs, and which these are.
    classes: Vec<(Mask, Mask)>,
}

enum Node {
    Object {
        /// Index into [`Cover::types`].
        ty: usize,
        knows: Mask,
        fields: Vec<Field>,
    },
    Abstract {
        /// By object type: the subgraphs that may return it here, and its node.
        members: Vec<(Mask, usize)>,
    },
}

struct Field {
    /// The subgraphs that resolve it of whatever object they have.
    by: Mask,
    /// The subgraphs that must be sent something for it.
    gated: Mask,
    /// Who resolves what these must be sent.
    needs: Vec<Mask>,
    child: Option<usize>,
}

/// The subgraphs of each wave, from wave 0 on.
type Waves = Vec<Mask>;

impl Cover {
    /// The model of an operation. `None` if it has something that the model does not know, or is too large.
    pub(super) fn new(
        solver: &mut Solver<'_>,
        fields: &Rc<Collected>,
        among: Option<SubgraphSet>,
    ) -> Option<Self> {
        let mut builder = Builder {
            solver,
            bits: HashMap::default(),
            cover: Self {
                subgraphs: Vec::new(),
                events: 0,
                types: Vec::new(),
                nodes: Vec::new(),
                roots: Vec::new(),
                work: 0,
            },
            types: HashMap::default(),
            nodes: HashMap::default(),
            fields: 0,
        };
        builder.roots(fields, among)?;
        let Builder { cover, fields, solver, .. } = builder;
        solver.steps += fields as u64;
        Some(cover)
    }

    /// The fewest waves in which everything can be had.
    pub(super) fn fewest_waves(&mut self) -> Option<usize> {
        (0..=WAVES_MAX).find(|&waves| {
            let all = self.everything(waves);
            self.suffices(&all)
        })
    }

    /// The least number of waves that any plan needs: as if every subgraph that resolves a field carried it.
    pub(super) fn waves_min(&self) -> usize {
        let mut known = HashMap::default();
        let root = |field: &Field| {
            let start = usize::from((field.by | field.gated) & self.events == 0);
            start + field.child.map_or(0, |child| self.depth(child, field.by, &mut known))
        };
        self.roots.iter().map(root).max().unwrap_or(0)
    }

    /// Waves after the one in which all of `holders` have the object, at least.
    fn depth(
        &self,
        node: usize,
        holders: Mask,
        known: &mut HashMap<(usize, Mask), usize>,
    ) -> usize {
        if let Some(&depth) = known.get(&(node, holders)) {
            return depth;
        }
        let depth = match &self.nodes[node] {
            Node::Abstract { members } => members
                .iter()
                .filter(|(mask, _)| mask & holders != 0)
                .map(|&(mask, member)| self.depth(member, mask & holders, known))
                .min(),
            Node::Object { fields, .. } => fields
                .iter()
                .map(|field| {
                    let here = field.by & holders;
                    let below = |by: Mask, known: &mut _| {
                        field.child.map_or(0, |child| self.depth(child, by, known))
                    };
                    let now = (here != 0).then(|| below(here, known));
                    let later = 1 + below(field.by | field.gated, known);
                    now.map_or(later, |now| now.min(later))
                })
                .max(),
        };
        let depth = depth.unwrap_or(0);
        known.insert((node, holders), depth);
        depth
    }

    /// A set of requests that suffices in so many waves and from which none can be left out. `None`: there is none.
    pub(super) fn smallest(&mut self, waves: usize, solver: &mut Solver<'_>) -> Option<Ration> {
        if waves > WAVES_MAX {
            return None;
        }
        let until = self.work + WORK_MAX;
        let before = self.work;
        let all = self.everything(waves);
        if !self.suffices(&all) {
            return None;
        }
        let mut requests = requests_of(&all);
        // Early requests go first: what can wait waits for a wave in which its subgraph is asked anyway.
        let mut best = self.reduced(all.clone(), &requests, until);
        requests.reverse();
        for seed in 0..=SHUFFLES {
            let found = self.reduced(all.clone(), &requests, until);
            if size(&found) < size(&best) {
                best = found;
            }
            shuffle(&mut requests, seed + 1);
        }
        // The way to fewer requests may lead over other ones.
        let mut has_improved = true;
        while has_improved && self.work < until {
            has_improved = false;
            for (subgraph, wave) in requests_of(&best) {
                let mut others = all.clone();
                others[wave] &= !subgraph;
                if !self.suffices(&others) {
                    continue;
                }
                let mut order = requests_of(&others);
                // Stable: those of the best set are tried last.
                order.sort_by_key(|&(subgraph, wave)| best[wave] & subgraph != 0);
                let found = self.reduced(others, &order, until);
                if size(&found) < size(&best) {
                    best = found;
                    has_improved = true;
                    break;
                }
            }
        }
        solver.steps += (self.work - before) / WORK_IN_STEP;
        let list = requests_of(&best)
            .into_iter()
            .map(|(bit, wave)| (self.subgraphs[bit.trailing_zeros() as usize], wave as u32));
        Some(list.collect())
    }

    /// Leaves out one request after the other, for as long as the rest suffices.
    fn reduced(&mut self, mut requests: Waves, order: &[(Mask, usize)], until: u64) -> Waves {
        for &(subgraph, wave) in order {
            if requests[wave] & subgraph == 0 || self.work > until {
                continue;
            }
            requests[wave] &= !subgraph;
            if !self.suffices(&requests) {
                requests[wave] |= subgraph;
            }
        }
        requests
    }

    fn everything(&self, waves: usize) -> Waves {
        let servers = all_of(self.subgraphs.len()) & !self.events;
        let mut all = vec![servers; waves + 1];
        all[0] = 0;
        let roots = self.roots.iter().fold(0, |known, root| known | root.by);
        // In the first wave there is nothing to jump from, unless an event has brought its payload.
        if let Some(first) = all.get_mut(1)
            && roots & self.events == 0
        {
            *first &= roots;
        }
        all
    }

    /// True if everything can be had by these requests.
    fn suffices(&mut self, requests: &Waves) -> bool {
        let waves = requests.len();
        let timetables: Vec<Vec<Timetable>> =
            self.types.iter().map(|ty| ty.timetables(requests)).collect();
        // By node and wave: the subgraphs that may get the object in that wave.
        let mut in_time: Vec<Mask> = vec![0; self.nodes.len() * waves];
        for index in 0..self.nodes.len() {
            let (below, own) = in_time.split_at_mut(index * waves);
            let is_possible = match &self.nodes[index] {
                Node::Abstract { members } => {
                    self.work += (members.len() * waves) as u64;
                    for (wave, own) in own[..waves].iter_mut().enumerate() {
                        *own = members.iter().fold(Mask::MAX, |known, &(mask, member)| {
                            known & (below[member * waves + wave] | !mask)
                        });
                    }
                    true
                }
                Node::Object { ty, knows, fields } => {
                    self.work += (fields.len() * waves) as u64;
                    for (wave, own) in own[..waves].iter_mut().enumerate() {
                        let classes = self.types[*ty].classes.iter().zip(&timetables[*ty]);
                        *own = classes.fold(0, |known, (&(class, _), table)| {
                            let from = From { table, wave, waves, below };
                            known | fields_in_time(fields, class & knows, &from)
                        });
                    }
                    own[0] != 0 || own[..waves].iter().any(|&mask| mask != 0)
                }
            };
            if !is_possible {
                return false;
            }
        }
        self.roots.iter().all(|root| {
            let asked = requests.get(1).copied().unwrap_or(0) & root.by;
            let payload = root.by & self.events;
            match root.child {
                None => asked | payload != 0,
                Some(child) => {
                    (waves > 1 && asked & in_time[child * waves + 1] != 0)
                        || payload & in_time[child * waves] != 0
                }
            }
        })
    }
}

/// When the subgraphs of a class lead where: by the wave in which the object is there, and the wave of the
/// request, the subgraphs that have it after that request.
struct Timetable(Vec<Vec<Mask>>);

impl JumpType {
    fn timetables(&self, requests: &Waves) -> Vec<Timetable> {
        let waves = requests.len();
        let table = |&(_, row): &(Mask, Mask)| {
            let starts = (0..waves).map(|start| {
                let mut leads_to = row;
                let mut arriving = vec![0; waves];
                for wave in start + 1..waves {
                    arriving[wave] = requests[wave] & leads_to;
                    leads_to |= self.rows_of(arriving[wave]);
                }
                arriving
            });
            Timetable(starts.collect())
        };
        self.classes.iter().map(table).collect()
    }

    /// All subgraphs that some of `holders` lead to.
    fn rows_of(&self, holders: Mask) -> Mask {
        self.classes
            .iter()
            .filter(|(class, _)| class & holders != 0)
            .fold(0, |known, (_, row)| known | row)
    }
}

/// Where an object is looked at: held since `wave` by subgraphs of one class.
struct From<'c> {
    table: &'c Timetable,
    wave: usize,
    waves: usize,
    /// [`Cover::suffices`] of the nodes further down.
    below: &'c [Mask],
}

impl From<'_> {
    fn arriving(&self) -> &[Mask] {
        &self.table.0[self.wave]
    }

    /// The subgraphs that may have the object in `wave`, for the node below a field.
    fn fits(&self, field: &Field, wave: usize) -> Mask {
        field.child.map_or(Mask::MAX, |child| self.below[child * self.waves + wave])
    }
}

/// Those of `holders` that alone, with the requests that follow, get all of `fields` in time.
fn fields_in_time(fields: &[Field], holders: Mask, from: &From<'_>) -> Mask {
    let mut left = holders;
    for field in fields {
        if left == 0 {
            return 0;
        }
        let is_later_in_time = (from.wave + 1..from.waves)
            .any(|wave| from.arriving()[wave] & field.by & from.fits(field, wave) != 0);
        if is_later_in_time {
            continue;
        }
        let mut able = field.by & from.fits(field, from.wave);
        if field.gated != 0 {
            able |= gated_in_time(field, left, from);
        }
        left &= able;
    }
    left
}

/// Those of `holders` that get a field whose resolver must be sent something.
fn gated_in_time(field: &Field, holders: Mask, from: &From<'_>) -> Mask {
    let known = |need: &Mask| {
        let later = (from.wave + 1..from.waves).find(|&wave| from.arriving()[wave] & need != 0);
        later.unwrap_or(from.waves)
    };
    // When what is required is there, if the holder itself does not have it, and which holders do.
    let others = field.needs.iter().map(known).max().unwrap_or(from.wave);
    let own = field.needs.iter().fold(holders, |known, need| known & need);
    let is_in_time = |since: usize| {
        (since + 1..from.waves)
            .any(|wave| from.arriving()[wave] & field.gated & from.fits(field, wave) != 0)
    };
    let mut able = 0;
    if own != 0 && is_in_time(from.wave) {
        able |= own;
    }
    if is_in_time(others) {
        able |= holders;
    }
    able
}

struct Builder<'s, 'a> {
    solver: &'s mut Solver<'a>,
    bits: HashMap<SubgraphId, usize>,
    cover: Cover,
    types: HashMap<TypeId, usize>,
    /// `None`: being built right now, or nothing is wanted.
    nodes: HashMap<(u32, TypeId), usize>,
    fields: usize,
}

impl<'a> Builder<'_, 'a> {
    fn roots(&mut self, fields: &Rc<Collected>, among: Option<SubgraphSet>) -> Option<()> {
        let graph = self.solver.graph();
        self.declare_subgraphs(fields)?;
        for wanted in &fields.fields {
            if wanted.field().is_none() {
                continue;
            }
            let mut found = Vec::new();
            self.field(wanted, &mut found)?;
            let among = among.map_or(Mask::MAX, |among| self.mask(among));
            found.iter_mut().for_each(|field| {
                field.by = (field.by | field.gated) & among;
                field.gated = 0;
            });
            self.cover.roots.extend(found);
        }
        for (index, &subgraph) in self.cover.subgraphs.iter().enumerate() {
            if graph.subgraph(subgraph).kind == SubgraphKind::Events {
                self.cover.events |= 1 << index;
            }
        }
        for (&ty, &index) in &self.types {
            self.cover.types[index] = jump_type(graph, ty, &self.cover.subgraphs);
        }
        self.flatten_values();
        Some(())
    }

    /// Gives every subgraph that resolves anything below `fields` a bit.
    fn declare_subgraphs(&mut self, fields: &Rc<Collected>) -> Option<()> {
        let mut seen: HashMap<(u32, TypeId), ()> = HashMap::default();
        let mut pending = vec![fields.clone()];
        let mut resolvers = SubgraphSet::EMPTY;
        while let Some(collected) = pending.pop() {
            self.fields += 1 + collected.fields.len();
            if self.fields > FIELDS_MAX {
                return None;
            }
            for wanted in &collected.fields {
                let graph = self.solver.graph();
                let Some(field) = wanted.field() else { continue };
                resolvers = resolvers.union(graph.field(field).resolved_by);
                if wanted.parts.is_empty() {
                    continue;
                }
                let below = graph.field(field).ty.named();
                for &member in &graph.ty(below).possible {
                    if seen.insert((wanted.parts.id(), member), ()).is_none() {
                        pending.push(self.solver.collect(&wanted.parts, member));
                    }
                }
            }
        }
        for subgraph in resolvers.iter() {
            self.bits.insert(subgraph, self.cover.subgraphs.len());
            self.cover.subgraphs.push(subgraph);
        }
        (self.cover.subgraphs.len() <= SUBGRAPHS_MAX).then_some(())
    }

    fn mask(&self, subgraphs: SubgraphSet) -> Mask {
        subgraphs.iter().filter_map(|it| self.bits.get(&it)).fold(0, |known, bit| known | 1 << bit)
    }

    /// Adds what is wanted of an object type, and says where it is.
    fn node(&mut self, parts: &Parts, ty: TypeId) -> Option<usize> {
        if let Some(&known) = self.nodes.get(&(parts.id(), ty)) {
            return Some(known);
        }
        let graph = self.solver.graph();
        let definition = graph.ty(ty);
        let has_interface_object = definition.subgraphs.iter().any(|there| there.interface_object);
        if has_interface_object || !definition.interface_objects.is_empty() {
            return None;
        }
        let node = if definition.kind.is_abstract() {
            let mut members = Vec::new();
            for (member, knowing) in self::members(graph, ty) {
                let knowing = self.mask(knowing);
                if knowing != 0 {
                    members.push((knowing, self.node(parts, member)?));
                }
            }
            Node::Abstract { members }
        } else {
            let mut fields = Vec::new();
            for wanted in &self.solver.collect(parts, ty).fields {
                self.field(wanted, &mut fields)?;
            }
            let knows = definition.subgraphs.iter().map(|there| there.subgraph).collect();
            Node::Object { ty: self.ty(ty), knows: self.mask(knows), fields }
        };
        let index = self.cover.nodes.len();
        self.cover.nodes.push(node);
        self.nodes.insert((parts.id(), ty), index);
        Some(index)
    }

    fn ty(&mut self, ty: TypeId) -> usize {
        let next = self.types.len();
        let index = *self.types.entry(ty).or_insert(next);
        if index == self.cover.types.len() {
            self.cover.types.push(JumpType { classes: Vec::new() });
        }
        index
    }

    /// Adds a field to those of its object, unless it asks no more than one that is there.
    fn field(&mut self, wanted: &Wanted, into: &mut Vec<Field>) -> Option<()> {
        let graph = self.solver.graph();
        let WantedTarget::Field(id) = wanted.target else { return Some(()) };
        let definition = graph.field(id);
        let by = self.mask(wanted.freely);
        let gated = self.mask(definition.resolved_by.difference(wanted.freely));
        let mut needs = Vec::new();
        if gated != 0 {
            let required = definition.subgraphs.iter().find_map(|there| there.requires.as_ref());
            for item in required.iter().flat_map(|set| &set.items) {
                if let FieldSetItem::Field { field, .. } = item {
                    needs.push(self.mask(graph.field(*field).resolved_by));
                }
            }
        }
        let child = match wanted.parts.is_empty() {
            true => None,
            false => Some(self.node(&wanted.parts, definition.ty.named())?),
        };
        let asks_no_more =
            |other: &Field| other.child.is_none() && other.gated == 0 && other.by & !by == 0;
        if child.is_none() && gated == 0 && into.iter().any(asks_no_more) {
            return Some(());
        }
        into.push(Field { by, gated, needs, child });
        Some(())
    }

    /// Moves what is wanted of objects without keys to the objects above: each subgraph that has these has
    /// its part of those, so that several may carry one value together.
    fn flatten_values(&mut self) {
        let types = &self.cover.types;
        let is_value = |node: &Node| match node {
            Node::Object { ty, .. } => types[*ty].classes.iter().all(|&(_, row)| row == 0),
            Node::Abstract { .. } => false,
        };
        let values: Vec<bool> = self.cover.nodes.iter().map(is_value).collect();
        for index in 0..self.cover.nodes.len() {
            let (below, rest) = self.cover.nodes.split_at_mut(index);
            if let Node::Object { fields, .. } = &mut rest[0] {
                *fields = flattened(std::mem::take(fields), &values, below);
            }
        }
        let roots = std::mem::take(&mut self.cover.roots);
        self.cover.roots = flattened(roots, &values, &self.cover.nodes);
    }
}

fn flattened(fields: Vec<Field>, values: &[bool], nodes: &[Node]) -> Vec<Field> {
    let mut flat = Vec::with_capacity(fields.len());
    for field in fields {
        let below = field.child.filter(|&child| values[child] && field.gated == 0);
        match below.map(|child| &nodes[child]) {
            Some(Node::Object { fields: inner, .. }) if inner.iter().all(|it| it.gated == 0) => {
                flat.push(Field { by: field.by, gated: 0, needs: Vec::new(), child: None });
                flat.extend(inner.iter().map(|inner| Field {
                    by: inner.by & field.by,
                    gated: 0,
                    needs: Vec::new(),
                    child: inner.child,
                }));
            }
            _ => flat.push(field),
        }
    }
    flat
}

/// The jumps for one object type between these subgraphs: whose holder has all members of a key.
fn jump_type(graph: &Supergraph, ty: TypeId, subgraphs: &[SubgraphId]) -> JumpType {
    let leads_to: Vec<Mask> = subgraphs
        .iter()
        .map(|&from| {
            let leads = |&to: &SubgraphId| {
                graph.has_query_root(ty, to)
                    || graph.keys_into(ty, to).any(|key| has(graph, &key.fields, ty, from))
            };
            let all = subgraphs.iter().enumerate().filter(|(_, to)| leads(to));
            all.fold(0, |known, (bit, _)| known | 1 << bit)
        })
        .collect();
    let mut classes: Vec<(Mask, Mask)> = Vec::new();
    for (bit, &row) in leads_to.iter().enumerate() {
        match classes.iter_mut().find(|(_, known)| *known == row) {
            Some((class, _)) => *class |= 1 << bit,
            None => classes.push((1 << bit, row)),
        }
    }
    JumpType { classes }
}

/// The object types of an abstract type, with the subgraphs that can return them for it.
fn members(graph: &Supergraph, ty: TypeId) -> impl Iterator<Item = (TypeId, SubgraphSet)> {
    graph.ty(ty).possible.iter().map(move |&member| {
        let there = graph.ty(ty).subgraphs.iter();
        let knowing = there.filter(|there| there.possible.contains(&member));
        (member, knowing.map(|there| there.subgraph).collect())
    })
}

/// True if `subgraph` resolves all of `set` of an object of type `on`.
fn has(graph: &Supergraph, set: &FieldSet, on: TypeId, subgraph: SubgraphId) -> bool {
    set.items.iter().all(|item| match item {
        FieldSetItem::Fragment { on, fields } => has(graph, fields, *on, subgraph),
        FieldSetItem::Field { field, fields, .. } => {
            let own = graph.field_named(on, &graph.field(*field).name).unwrap_or(*field);
            graph.field(own).resolved_by.contains(subgraph)
                && has(graph, fields, graph.field(own).ty.named(), subgraph)
        }
    })
}

/// The lowest `count` bits.
fn all_of(count: usize) -> Mask {
    if count >= SUBGRAPHS_MAX { Mask::MAX } else { (1 << count) - 1 }
}

fn size(requests: &Waves) -> u32 {
    requests.iter().map(|mask| mask.count_ones()).sum()
}

/// The single requests of a set, by wave.
fn requests_of(requests: &Waves) -> Vec<(Mask, usize)> {
    let mut list = Vec::new();
    for (wave, &mask) in requests.iter().enumerate() {
        let bits = (0..SUBGRAPHS_MAX).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
        list.extend(bits.map(|bit: Mask| (bit, wave)));
    }
    list
}

/// Another order, the same in every run (xorshift64*, then Fisher and Yates).
fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for at in (1..list.len()).rev() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        list.swap(at, random as usize % (at + 1));
    }
}
