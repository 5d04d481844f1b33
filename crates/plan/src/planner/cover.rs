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
const WORK_MAX: u64 = 2_000_000;

/// Operations on masks that take as long as a step of the solver.
const WORK_IN_STEP: u64 = 16;

/// Orders of leaving out requests that are tried, beside those by wave.
const SHUFFLES: u64 = 4;

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
    /// Memory of [`Cover::suffices`].
    timetables: Vec<Mask>,
    in_time: Vec<Mask>,
}

/// The jumps between subgraphs for objects of one type.
struct JumpType {
    /// Subgraphs from which keys of the object lead to the same subgraphs, and which these are.
    classes: Vec<(Mask, Mask)>,
    /// The number of classes of all types before this one.
    first_class: usize,
}

enum Node {
    Object {
        /// Index into [`Cover::types`].
        ty: usize,
        knows: Mask,
        /// By leaf field: the subgraphs that resolve it of whatever object they have.
        leaves: Vec<Mask>,
        /// The other fields.
        fields: Vec<Field>,
    },
    Abstract {
        /// By object type: the subgraphs that may return it here, and its node.
        members: Vec<(Mask, usize)>,
    },
}

impl Node {
    /// Keeps leaf fields apart, and of those only the masks that say more than others.
    fn separate_leaves(&mut self) {
        let Self::Object { leaves, fields, .. } = self else { return };
        let is_leaf = |field: &Field| field.child.is_none() && field.gated == 0;
        leaves.extend(fields.iter().filter(|field| is_leaf(field)).map(|field| field.by));
        fields.retain(|field| !is_leaf(field));
        leaves.sort_unstable_by_key(|by| (by.count_ones(), *by));
        let mut kept: Vec<Mask> = Vec::new();
        for &by in leaves.iter() {
            if !kept.iter().any(|narrower| narrower & !by == 0) {
                kept.push(by);
            }
        }
        *leaves = kept;
    }
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
                timetables: Vec::new(),
                in_time: Vec::new(),
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
            Node::Object { fields, leaves, .. } => fields
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
                .chain(leaves.iter().map(|by| usize::from(by & holders == 0)))
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
        let before = self.work;
        let until = before + WORK_MAX;
        let all = self.everything(waves);
        if !self.suffices(&all) {
            return None;
        }
        // What nothing works without is in every set.
        let mut optional = Vec::new();
        for (subgraph, wave) in requests_of(&all) {
            let mut others = all.clone();
            others[wave] &= !subgraph;
            if self.suffices(&others) {
                optional.push((subgraph, wave));
            }
        }
        let needed = size(&all) as usize - optional.len();
        // Early requests go first: what can wait waits for a wave in which its subgraph is asked anyway.
        let mut best = self.reduced(all.clone(), &optional, until);
        let mut order = optional.clone();
        order.reverse();
        for seed in 0..=SHUFFLES {
            if size(&best) as usize == needed || self.work > until {
                break;
            }
            let found = self.reduced(all.clone(), &order, until);
            if size(&found) < size(&best) {
                best = found;
            }
            shuffle(&mut order, seed + 1);
        }
        // The way to fewer requests may lead over other ones.
        let mut has_improved = size(&best) as usize > needed;
        while has_improved && self.work < until {
            has_improved = false;
            let is_in = |best: &Waves, subgraph: Mask, wave: usize| best[wave] & subgraph != 0;
            for &(subgraph, wave) in &optional {
                if !is_in(&best, subgraph, wave) || self.work > until {
                    continue;
                }
                let mut others = all.clone();
                others[wave] &= !subgraph;
                let mut order = optional.clone();
                // Stable: those of the best set are tried last.
                order.sort_by_key(|&(subgraph, wave)| is_in(&best, subgraph, wave));
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
        let mut timetables = std::mem::take(&mut self.timetables);
        let mut in_time = std::mem::take(&mut self.in_time);
        timetables.clear();
        for ty in &self.types {
            ty.add_timetables(requests, &mut timetables);
        }
        in_time.clear();
        in_time.resize(self.nodes.len() * waves, 0);
        let is_enough = self.fill_in_time(&timetables, &mut in_time, waves)
            && self.has_roots(requests, &in_time);
        self.timetables = timetables;
        self.in_time = in_time;
        is_enough
    }

    /// Works out, by node and wave, which subgraphs may get the object in that wave. False if some node
    /// cannot be had at all.
    fn fill_in_time(&mut self, timetables: &[Mask], in_time: &mut [Mask], waves: usize) -> bool {
        let mut work = timetables.len() as u64;
        let mut is_possible = true;
        for (index, node) in self.nodes.iter().enumerate() {
            let (below, own) = in_time.split_at_mut(index * waves);
            match node {
                Node::Abstract { members } => {
                    work += (members.len() * waves) as u64;
                    for (wave, own) in own[..waves].iter_mut().enumerate() {
                        *own = members.iter().fold(Mask::MAX, |known, &(mask, member)| {
                            known & (below[member * waves + wave] | !mask)
                        });
                    }
                }
                Node::Object { ty, knows, leaves, fields } => {
                    let ty = &self.types[*ty];
                    work += (leaves.len() * waves + fields.len() * waves * waves / 2) as u64;
                    let mut any = 0;
                    for (wave, own) in own[..waves].iter_mut().enumerate() {
                        for (number, &(class, _)) in ty.classes.iter().enumerate() {
                            let start = ((ty.first_class + number) * waves + wave) * waves;
                            let arriving = &timetables[start..start + waves];
                            let from = From { arriving, wave, waves, below };
                            *own |= from.in_time(leaves, fields, class & knows);
                        }
                        any |= *own;
                    }
                    is_possible = any != 0;
                }
            }
            if !is_possible {
                break;
            }
        }
        self.work += work;
        is_possible
    }

    fn has_roots(&self, requests: &Waves, in_time: &[Mask]) -> bool {
        let waves = requests.len();
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

impl JumpType {
    /// Adds, by class, by the wave in which the object is there and by the wave of the request: the subgraphs
    /// that have the object after that request.
    fn add_timetables(&self, requests: &Waves, into: &mut Vec<Mask>) {
        for &(_, row) in &self.classes {
            for start in 0..requests.len() {
                let mut leads_to = row;
                for (wave, &asked) in requests.iter().enumerate() {
                    let arriving = if wave > start { asked & leads_to } else { 0 };
                    leads_to |= self.rows_of(arriving);
                    into.push(arriving);
                }
            }
        }
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
    /// By wave: the subgraphs that have the object after a request of that wave.
    arriving: &'c [Mask],
    wave: usize,
    waves: usize,
    /// [`Cover::in_time`] of the nodes further down.
    below: &'c [Mask],
}

impl From<'_> {
    /// Those of `holders` that alone, with the requests that follow, get everything in time.
    fn in_time(&self, leaves: &[Mask], fields: &[Field], holders: Mask) -> Mask {
        let mut left = holders;
        let later = self.arriving.iter().fold(0, |known, arriving| known | arriving);
        for by in leaves {
            if later & by == 0 {
                left &= by;
            }
        }
        for field in fields {
            if left == 0 {
                return 0;
            }
            let is_later_in_time = (self.wave + 1..self.waves)
                .any(|wave| self.arriving[wave] & field.by & self.fits(field, wave) != 0);
            if is_later_in_time {
                continue;
            }
            let mut able = field.by & self.fits(field, self.wave);
            if field.gated != 0 {
                able |= self.gated_in_time(field, left);
            }
            left &= able;
        }
        left
    }

    /// Those of `holders` that get a field whose resolver must be sent something.
    fn gated_in_time(&self, field: &Field, holders: Mask) -> Mask {
        let known = |need: &Mask| {
            let later = (self.wave + 1..self.waves).find(|&wave| self.arriving[wave] & need != 0);
            later.unwrap_or(self.waves)
        };
        // When what is required is there, if the holder itself does not have it, and which holders do.
        let others = field.needs.iter().map(known).max().unwrap_or(self.wave);
        let own = field.needs.iter().fold(holders, |known, need| known & need);
        let is_in_time = |since: usize| {
            (since + 1..self.waves)
                .any(|wave| self.arriving[wave] & field.gated & self.fits(field, wave) != 0)
        };
        let mut able = 0;
        if own != 0 && is_in_time(self.wave) {
            able |= own;
        }
        if is_in_time(others) {
            able |= holders;
        }
        able
    }

    /// The subgraphs that may have the object in `wave`, for the node below a field.
    fn fits(&self, field: &Field, wave: usize) -> Mask {
        field.child.map_or(Mask::MAX, |child| self.below[child * self.waves + wave])
    }
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
        let mut first_class = 0;
        for ty in &mut self.cover.types {
            ty.first_class = first_class;
            first_class += ty.classes.len();
        }
        self.flatten_values();
        self.cover.nodes.iter_mut().for_each(Node::separate_leaves);
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
            let (ty, knows) = (self.ty(ty), self.mask(knows));
            Node::Object { ty, knows, leaves: Vec::new(), fields }
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
            self.cover.types.push(JumpType { classes: Vec::new(), first_class: 0 });
        }
        index
    }

    /// Adds a field to those of its object.
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
    JumpType { classes, first_class: 0 }
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
