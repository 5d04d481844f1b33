//! The argument `initial` of `@events__subscribe`: the source of a subscription field's current state, which a
//! subscriber receives before any event. This module reads and checks the argument; fetching the state is not its
//! business.

use crate::{
    AppliedDirective, Argument, ConstValue, EventRole, Field, FieldId, FieldSet, FieldSetItem,
    SubgraphId, SubgraphKind, Supergraph, TypeId, TypeKind, TypeRef, TypeRefShape,
};

/// The source of a subscription field's current state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InitialState {
    /// The state is the entity that the arguments identify, fetched from the subgraphs that resolve it.
    Entity {
        /// The event subgraph, which knows only the keys here.
        subgraph: SubgraphId,
        /// The entity's type, an object type.
        ty: TypeId,
        /// The key fields of the entity, each of which has an argument of its name. They contain a key that some server
        /// accepts.
        keys: Vec<FieldId>,
    },
    /// The state is the value of this field of the query root with the same arguments.
    Field(FieldId),
}

impl Supergraph {
    /// Returns the source of a subscription field's current state. `None` if the field has none, or if its `initial` is
    /// invalid; a graph with an invalid `initial` is refused when its bindings are read.
    pub fn initial_state(&self, field: FieldId) -> Option<InitialState> {
        let is_source = |it: &&AppliedDirective| {
            EventRole::of_directive(&it.name) == Some(EventRole::Subscribe)
        };
        let directive = self.field(field).directives.iter().find(is_source)?;
        self.initial(field, directive).ok().flatten()
    }

    /// Returns the source of the current state that one directive names.
    ///
    /// # Errors
    /// The error says why the argument `initial` is invalid and which values are valid.
    pub fn initial(
        &self,
        field: FieldId,
        directive: &AppliedDirective,
    ) -> Result<Option<InitialState>, String> {
        match directive.argument("initial") {
            None | Some(ConstValue::Null) => Ok(None),
            Some(ConstValue::Enum(name) | ConstValue::String(name)) if &**name == "ENTITY" => {
                self.read_entity(self.field(field), directive).map(Some)
            }
            Some(ConstValue::Object(members)) => match &members[..] {
                [(member, ConstValue::String(name))] if &**member == "field" => self
                    .find_query_field(self.field(field), name)
                    .map(|it| Some(InitialState::Field(it))),
                _ => Err("initial must be ENTITY or {field: \"…\"}".to_owned()),
            },
            Some(_) => Err("initial must be ENTITY or {field: \"…\"}".to_owned()),
        }
    }

    fn read_entity(
        &self,
        field: &Field,
        directive: &AppliedDirective,
    ) -> Result<InitialState, String> {
        let instead = "; initial: {field: \"…\"} takes the state from a root field of the query";
        let TypeRefShape::Named(ty) = field.ty.shape else {
            return Err(format!("initial: ENTITY is one object, and the field is a list{instead}"));
        };
        let name = &self.ty(ty).name;
        match self.ty(ty).kind {
            TypeKind::Object => {}
            TypeKind::Interface | TypeKind::Union => {
                return Err(format!(
                    "initial: ENTITY needs to know the object's type, and `{name}` stands for several{instead}"
                ));
            }
            _ => return Err(format!("initial: ENTITY: `{name}` is not an entity{instead}")),
        }
        let is_events = |it: &SubgraphId| self.subgraph(*it).kind == SubgraphKind::Events;
        let here = directive.subgraphs.iter().find(is_events);
        let keys = here.and_then(|here| self.type_in(ty, here)).map_or(&[][..], |it| &it.keys);
        let Some((here, first)) = here.zip(keys.first()) else {
            return Err(format!(
                "initial: ENTITY: `{name}` has no @key in the event subgraph{instead}"
            ));
        };
        let mut covered: Vec<FieldId> = Vec::new();
        let mut problem = None;
        for key in keys {
            match self.key_arguments(field, &key.fields) {
                Ok(fields) => covered.extend(fields),
                Err(reason) => _ = problem.get_or_insert(reason),
            }
        }
        covered.sort_unstable_by_key(|it| it.0);
        covered.dedup();
        if covered.is_empty() {
            let reason = problem.unwrap_or_else(|| "the key is empty".to_owned());
            let key = leaf_names(self, &first.fields).join(" ");
            return Err(format!(
                "initial: ENTITY needs an argument for each field of a key of `{name}`, such as \"{key}\": {reason}"
            ));
        }
        let takes = |subgraph: SubgraphId| {
            self.keys_into(ty, subgraph).any(|key| {
                key.fields.items.iter().all(|item| {
                    matches!(item, FieldSetItem::Field { field, .. } if covered.contains(field))
                })
            })
        };
        if !self.ty(ty).subgraphs.iter().any(|it| takes(it.subgraph)) {
            let known: Vec<_> = covered.iter().map(|&it| &*self.field(it).name).collect();
            return Err(format!(
                "initial: ENTITY: no subgraph resolves `{name}` by \"{}\"{instead}",
                known.join(" ")
            ));
        }
        Ok(InitialState::Entity { subgraph: here, ty, keys: covered })
    }

    /// Returns the fields of `key`, each of which must have an argument of its name on `field`.
    fn key_arguments(&self, field: &Field, key: &FieldSet) -> Result<Vec<FieldId>, String> {
        let mut covered = Vec::new();
        for item in &key.items {
            let FieldSetItem::Field { field: member, fields, .. } = item else {
                return Err("a key with fragments cannot be an argument".to_owned());
            };
            let key = self.field(*member);
            let (name, ty) = (&key.name, &self.ty(key.ty.named()).name);
            let Some(argument) = field.arguments.iter().find(|it| it.name == *name) else {
                return Err(format!("there is no argument {name:?}"));
            };
            if !fields.items.is_empty() || matches!(key.ty.shape, TypeRefShape::List(_)) {
                return Err(format!("key field `{name}` is not a single value"));
            }
            let Some(given) = argument.ty.strip_suffix('!') else {
                return Err(format!("argument {name:?} may be null; its type must be `{ty}!`"));
            };
            let is_text = |name: &str| matches!(name, "ID" | "String");
            if *given != **ty && !(is_text(given) && is_text(ty)) {
                return Err(format!(
                    "argument {name:?} has the type `{}`, and the key field `{ty}`",
                    argument.ty
                ));
            }
            covered.push(*member);
        }
        Ok(covered)
    }

    fn find_query_field(&self, field: &Field, name: &str) -> Result<FieldId, String> {
        let query = &self.ty(self.query).name;
        let Some(id) = self.field_named(self.query, name) else {
            return Err(format!("initial: there is no root field `{query}.{name}`"));
        };
        let source = self.field(id);
        let place = format!("initial: `{query}.{name}`");
        if !is_assignable(&source.ty, &field.ty, true) {
            return Err(format!("{place} has another type than the subscription's field"));
        }
        for argument in &field.arguments {
            let there = source.arguments.iter().find(|it| it.name == argument.name);
            let Some(Argument { ty, .. }) = there else {
                return Err(format!("{place} has no argument {:?}", argument.name));
            };
            if *ty != argument.ty && argument.ty.strip_suffix('!') != Some(ty) {
                return Err(format!(
                    "{place} takes `{ty}` as argument {:?}, and the subscription's field `{}`",
                    argument.name, argument.ty
                ));
            }
        }
        let is_missing = |it: &&Argument| {
            let is_given = field.arguments.iter().any(|own| own.name == it.name);
            !is_given && it.ty.ends_with('!') && it.default.is_none()
        };
        match source.arguments.iter().find(is_missing) {
            Some(missing) => Err(format!(
                "{place} needs the argument {:?}, which the subscription's field does not have",
                missing.name
            )),
            None => Ok(id),
        }
    }

    /// Returns this supergraph as it applies to one object of `field` of which `subgraph` knows these keys and nothing
    /// else. Ids do not change.
    #[must_use]
    pub fn with_keys_only(&self, field: FieldId, subgraph: SubgraphId, keys: &[FieldId]) -> Self {
        let mut there = self.clone();
        for (number, it) in there.fields.iter_mut().enumerate() {
            // The number of fields always fits into an id.
            let id = FieldId(number as u32);
            if id != field && !keys.contains(&id) {
                it.resolved_by.remove(subgraph);
                // The object contains no other field of the subgraph either: its mention would conflict by name.
                it.subgraphs.retain(|said| said.subgraph != subgraph);
            }
        }
        let root = &mut there.fields[field.0 as usize];
        for said in root.subgraphs.iter_mut().filter(|it| it.subgraph == subgraph) {
            said.provides = None;
        }
        there
    }
}

/// True if every value of type `given` is a value of type `wanted`. Nullability of the outermost type is left to the
/// caller.
fn is_assignable(given: &TypeRef, wanted: &TypeRef, is_outermost: bool) -> bool {
    let fits = is_outermost || wanted.nullable || !given.nullable;
    fits && match (&given.shape, &wanted.shape) {
        (TypeRefShape::Named(given), TypeRefShape::Named(wanted)) => given == wanted,
        (TypeRefShape::List(given), TypeRefShape::List(wanted)) => {
            is_assignable(given, wanted, false)
        }
        _ => false,
    }
}

fn leaf_names<'a>(graph: &'a Supergraph, set: &FieldSet) -> Vec<&'a str> {
    let name = |item: &FieldSetItem| match item {
        FieldSetItem::Field { field, .. } => Some(&*graph.field(*field).name),
        FieldSetItem::Fragment { .. } => None,
    };
    set.items.iter().filter_map(name).collect()
}
