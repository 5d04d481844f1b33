//! The subgraphs that can resolve a field of an object, given the subgraphs that have the object.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use graph::{FieldId, FieldSet, FieldSetItem, Jumps, SubgraphId, SubgraphSet, Supergraph, TypeId};

/// The fields below an object that a subgraph resolves there by `@provides`, although they are external.
pub(super) type Provided<'g> = Vec<(SubgraphId, &'g FieldSet)>;

/// An object in hand.
#[derive(Clone, Debug)]
pub(super) struct ObjectState<'g> {
    /// An object type.
    pub(super) ty: TypeId,
    /// The subgraphs that gave the object.
    pub(super) holders: SubgraphSet,
    pub(super) provided: Provided<'g>,
    /// The types of this object and of those above that set contexts.
    pub(super) setters: Vec<TypeId>,
    /// The subgraphs that can hold the object in the end.
    pub(super) reached: SubgraphSet,
}

/// The maximum number of steps of one check: far above real graphs, which need a few for each field. Beyond it fields
/// with requirements count as resolvable, so that hostile requirements cost bounded time.
const STEPS_MAX: u32 = 5_000_000;

/// The identity of a field of an object in hand.
type ObjectFieldKey =
    (TypeId, SubgraphSet, Vec<(SubgraphId, *const FieldSet)>, Vec<TypeId>, FieldId);

/// The supergraph with its compiled jumps.
pub(super) struct Resolution<'g> {
    pub(super) graph: &'g Supergraph,
    pub(super) jumps: Jumps,
    /// The types that set contexts and may be the type of an object, by the object's type.
    setters: HashMap<TypeId, Vec<TypeId>>,
    /// The results that do not depend on pending fields.
    known: RefCell<HashMap<ObjectFieldKey, SubgraphSet>>,
    steps: Cell<u32>,
    /// The number of times that a field was found to be its own requirement.
    cycles: Cell<u32>,
}

impl<'g> Resolution<'g> {
    pub(super) fn new(graph: &'g Supergraph) -> Self {
        Self {
            graph,
            jumps: Jumps::new(graph),
            setters: find_setters(graph),
            known: RefCell::default(),
            steps: Cell::new(0),
            cycles: Cell::new(0),
        }
    }

    /// Creates the state of an object that `holders` gave.
    pub(super) fn state(
        &self,
        ty: TypeId,
        holders: SubgraphSet,
        provided: Provided<'g>,
        above: &[TypeId],
    ) -> ObjectState<'g> {
        let reached = self.jumps.reachable(ty, holders);
        let mut setters = above.to_vec();
        setters.extend(self.setters.get(&ty).into_iter().flatten());
        setters.sort_unstable();
        setters.dedup();
        let mut state = ObjectState { ty, holders, provided, setters, reached };
        if state.provided.is_empty() {
            return state;
        }
        // Provided fields may complete a key.
        let mut has_grown = true;
        while has_grown {
            has_grown = false;
            for target in self.jumps.targets(ty).difference(state.reached).iter() {
                if self.can_enter(&state, target, &mut Vec::new()) {
                    let mut holders = state.reached;
                    holders.insert(target);
                    state.reached = self.jumps.reachable(ty, holders);
                    has_grown = true;
                }
            }
        }
        state
    }

    /// Returns the subgraphs that can resolve `field` of the object. `pending` are the fields with requirements that
    /// are being resolved: a field cannot be its own requirement.
    pub(super) fn carriers(
        &self,
        state: &ObjectState<'g>,
        field: FieldId,
        pending: &mut Vec<FieldId>,
    ) -> SubgraphSet {
        let provided =
            state.provided.iter().map(|(subgraph, set)| (*subgraph, std::ptr::from_ref(*set)));
        let key = (state.ty, state.reached, provided.collect(), state.setters.clone(), field);
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let cycles = self.cycles.get();
        let carriers = self.find_carriers(state, field, pending);
        if self.cycles.get() == cycles {
            self.known.borrow_mut().insert(key, carriers);
        }
        carriers
    }

    fn find_carriers(
        &self,
        state: &ObjectState<'g>,
        field: FieldId,
        pending: &mut Vec<FieldId>,
    ) -> SubgraphSet {
        self.steps.set(self.steps.get().saturating_add(1));
        let mut carriers = SubgraphSet::EMPTY;
        for subgraph in self.graph.field(field).resolved_by.intersection(state.reached).iter() {
            let mention = self.graph.field_in(field, subgraph);
            let has_contexts = mention.is_none_or(|mention| {
                mention.context.iter().all(|argument| {
                    argument.selections.iter().any(|(ty, _)| state.setters.contains(ty))
                })
            });
            if !has_contexts {
                continue;
            }
            let can_resolve = match mention.and_then(|it| it.requires.as_ref()) {
                None => true,
                Some(_) if self.steps.get() > STEPS_MAX => true,
                Some(_) if pending.contains(&field) => {
                    self.cycles.set(self.cycles.get().saturating_add(1));
                    false
                }
                Some(requires) => {
                    pending.push(field);
                    let can_resolve = self.can_enter(state, subgraph, pending)
                        && self.can_select(state, requires, pending);
                    pending.pop();
                    can_resolve
                }
            };
            if can_resolve {
                carriers.insert(subgraph);
            }
        }
        for (subgraph, set) in &state.provided {
            if self.find_provided(set, state.ty, field).is_some() {
                carriers.insert(*subgraph);
            }
        }
        carriers
    }

    /// True if some subgraph gives the type of the object: one that gave the object as what it is, or one that is reached
    /// by a key of an interface and knows its implementations.
    pub(super) fn is_type_known(&self, state: &ObjectState<'g>) -> bool {
        state.holders.iter().any(|holder| {
            let interface = self.graph.local_type(state.ty, holder);
            interface == state.ty
                || self
                    .jumps
                    .targets(interface)
                    .intersection(state.reached)
                    .iter()
                    .any(|subgraph| !self.graph.is_interface_object(interface, subgraph))
        })
    }

    /// True if the router can fetch the object from `subgraph` by a key that the reached subgraphs give.
    pub(super) fn can_enter(
        &self,
        state: &ObjectState<'g>,
        subgraph: SubgraphId,
        pending: &mut Vec<FieldId>,
    ) -> bool {
        self.graph.is_query_root_in(state.ty, subgraph)
            || self
                .graph
                .keys_into(state.ty, subgraph)
                .any(|key| self.can_select(state, &key.fields, pending))
    }

    /// True if all fields of `set` can be resolved for the object.
    pub(super) fn can_select(
        &self,
        state: &ObjectState<'g>,
        set: &'g FieldSet,
        pending: &mut Vec<FieldId>,
    ) -> bool {
        set.items.iter().all(|item| match item {
            FieldSetItem::Fragment { on, fields } => {
                let applies = *on == state.ty || self.graph.ty(*on).possible.contains(&state.ty);
                !applies || self.can_select(state, fields, pending)
            }
            FieldSetItem::Field { field, fields, .. } => {
                // A set written on an interface means the object type's own field of that name.
                let name = &self.graph.field(*field).name;
                let Some(own) = self.graph.field_named(state.ty, name) else { return false };
                let carriers = self.carriers(state, own, pending);
                !carriers.is_empty()
                    && (fields.items.is_empty()
                        || self
                            .states_below(state, own, carriers)
                            .iter()
                            .all(|below| self.can_select(below, fields, pending)))
            }
        })
    }

    /// Returns the states of the objects that `field` can return from `carriers`.
    pub(super) fn states_below(
        &self,
        state: &ObjectState<'g>,
        field: FieldId,
        carriers: SubgraphSet,
    ) -> Vec<ObjectState<'g>> {
        let graph = self.graph;
        let possible = |subgraph| graph.possible_in(graph.field_type_in(field, subgraph), subgraph);
        let mut types: Vec<TypeId> = carriers.iter().flat_map(possible).copied().collect();
        types.sort_unstable();
        types.dedup();
        // Subgraphs that share a field give the same object, so it has a type that all of them know.
        types.retain(|ty| carriers.iter().all(|it| possible(it).contains(ty)));
        types
            .into_iter()
            .map(|ty| {
                let provided = self.provided_below(state, field, carriers);
                self.state(ty, carriers, provided, &state.setters)
            })
            .collect()
    }

    fn provided_below(
        &self,
        state: &ObjectState<'g>,
        field: FieldId,
        carriers: SubgraphSet,
    ) -> Provided<'g> {
        let mut provided: Provided<'g> = Vec::new();
        for subgraph in carriers.iter() {
            let mention = self.graph.field_in(field, subgraph);
            if let Some(set) = mention.and_then(|it| it.provides.as_ref()) {
                provided.push((subgraph, set));
            }
        }
        for (subgraph, set) in &state.provided {
            if let Some(fields) = self.find_provided(set, state.ty, field)
                && !fields.items.is_empty()
            {
                provided.push((*subgraph, fields));
            }
        }
        provided
    }

    /// Returns the selection on `field` in a provided set, if the set has the field for objects of type `ty`.
    fn find_provided(&self, set: &'g FieldSet, ty: TypeId, field: FieldId) -> Option<&'g FieldSet> {
        let name = &self.graph.field(field).name;
        set.items.iter().find_map(|item| match item {
            FieldSetItem::Field { field: provided, fields, .. } => {
                (self.graph.field(*provided).name == *name).then_some(fields)
            }
            FieldSetItem::Fragment { on, fields } => {
                let applies = *on == ty || self.graph.ty(*on).possible.contains(&ty);
                if applies { self.find_provided(fields, ty, field) } else { None }
            }
        })
    }
}

fn find_setters(graph: &Supergraph) -> HashMap<TypeId, Vec<TypeId>> {
    let mut setters: HashMap<TypeId, Vec<TypeId>> = HashMap::new();
    for (index, ty) in graph.types.iter().enumerate().filter(|(_, ty)| !ty.contexts.is_empty()) {
        for object in &ty.possible {
            // The number of types always fits into an id.
            setters.entry(*object).or_default().push(TypeId(index as u32));
        }
    }
    setters
}
