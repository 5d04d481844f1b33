//! A plain GraphQL executor (GraphQL specification, section 6) over any resolver. The reference server and the
//! subgraphs share it and differ in their resolvers.
//!
//! `load::subgraph` has the only other executor of the workspace, for mocks and load. The two stay separate, because
//! they need opposite things. An oracle must be independent of what it checks and readable beside the specification:
//! this executor interprets the document, asks the resolver for each field, and returns `serde_json` values, so that a
//! subgraph can reject what a real one could not resolve, and the reference server can execute a whole supergraph with
//! `@requires` and contexts. The server under a load test must cost less than the router: the other executor compiles
//! operations and copies prepared JSON text, and it knows nothing of supergraphs.

use std::collections::HashMap;

use apollo_compiler::Node;
use apollo_compiler::ast::{self, Definition, Directive, Document, Field, Selection};
use graph::{TypeId, TypeRef, TypeRefShape};
use serde_json::{Map, Value, json};

/// The result of a resolver.
pub(crate) enum Resolved<O> {
    Leaf(Value),
    List(Vec<Resolved<O>>),
    Object(O),
    Error(String),
}

/// Resolves the fields of objects.
pub(crate) trait Resolver {
    type Object: Clone;

    /// True if the object has that type or implements it.
    fn is_a(&self, object: &Self::Object, ty: &str) -> bool;

    /// Returns the value of a field and its type.
    fn resolve(
        &self,
        object: &Self::Object,
        field: &Field,
        arguments: Map<String, Value>,
    ) -> (Resolved<Self::Object>, TypeRef);

    /// True if the client may not use the field: it is null with an error, and is not resolved.
    fn is_denied_field(&self, _: &Self::Object, _: &Field) -> bool {
        false
    }

    /// True if the client may not use the object: it is null with an error.
    fn is_denied_object(&self, _: &Self::Object) -> bool {
        false
    }

    /// True if a value from which the field is computed failed, which the client need not see.
    fn depends_on_failures(&self, object: &Self::Object, field: &Field) -> bool;
}

/// A response: `data`, and the path and message of each error.
pub(crate) struct Response {
    pub(crate) data: Value,
    pub(crate) errors: Vec<(Vec<Value>, String)>,
    pub(crate) impaired: Vec<Impaired>,
}

/// An object for which errors may be reported that do not belong to its own fields.
pub(crate) struct Impaired {
    pub(crate) path: Vec<Value>,
    /// True if a selected field of the object depends on failed values, in which case an error may be reported at any
    /// path below the object. Otherwise a skipped field does, and the error may be reported at the object only: values
    /// for the skipped field may be fetched together with others.
    pub(crate) is_selected: bool,
}

impl Response {
    /// Returns the response as JSON in the form that GraphQL servers write.
    pub(crate) fn to_json(&self) -> Value {
        let mut out = json!({ "data": self.data });
        if !self.errors.is_empty() {
            let one = |(path, message): &(Vec<Value>, String)| json!({ "message": message, "path": path });
            out["errors"] = self.errors.iter().map(one).collect();
        }
        out
    }
}

/// Executes the only operation of `document` on `root`.
pub(crate) fn execute<R: Resolver>(
    resolver: &R,
    document: &Document,
    variables: &Map<String, Value>,
    root: R::Object,
) -> Response {
    let mut fragments = HashMap::new();
    let mut operation = None;
    for definition in &document.definitions {
        match definition {
            Definition::OperationDefinition(found) => operation = Some(found),
            Definition::FragmentDefinition(found) => {
                fragments.insert(found.name.as_str(), found);
            }
            _ => {}
        }
    }
    let Some(operation) = operation else {
        let errors = vec![(Vec::new(), "no operation".into())];
        return Response { data: Value::Null, errors, impaired: Vec::new() };
    };
    let mut given = Map::new();
    for variable in &operation.variables {
        let default = || variable.default_value.as_ref().map(|value| literal(value, &Map::new()));
        let value = variables.get(variable.name.as_str()).cloned().or_else(default);
        given.extend(value.map(|value| (variable.name.to_string(), value)));
    }
    let mut run = Execution {
        resolver,
        fragments,
        variables: given,
        path: Vec::new(),
        errors: Vec::new(),
        impaired: Vec::new(),
    };
    let sets = [SelectionPart { set: &operation.selection_set, is_skipped: false }];
    let data = run.object(&sets, &root).unwrap_or(Value::Null);
    Response { data, errors: run.errors, impaired: run.impaired }
}

/// The message about a field or an object that the client may not use.
const DENIED: &str = "Unauthorized field or type";

/// A null that propagates to the parent.
struct Propagated;

struct Execution<'a, R: Resolver> {
    resolver: &'a R,
    fragments: HashMap<&'a str, &'a Node<ast::FragmentDefinition>>,
    variables: Map<String, Value>,
    path: Vec<Value>,
    errors: Vec<(Vec<Value>, String)>,
    impaired: Vec<Impaired>,
}

/// A selection set of an object.
#[derive(Clone, Copy)]
struct SelectionPart<'a> {
    set: &'a [Selection],
    /// True if a selection further up is skipped.
    is_skipped: bool,
}

/// The selections of an object under one response key, including skipped ones.
struct MentionedField<'a> {
    key: &'a str,
    /// The fields, each with its position among all fields of the object, and whether it is skipped.
    fields: Vec<(usize, &'a Field, bool)>,
}

impl<'a> MentionedField<'a> {
    /// Returns the first field that is not skipped, with its position.
    fn wanted(&self) -> Option<(usize, &'a Field)> {
        let mut wanted = self.fields.iter().filter(|(_, _, is_skipped)| !is_skipped);
        wanted.next().map(|&(at, field, _)| (at, field))
    }
}

impl<'a, R: Resolver> Execution<'a, R> {
    fn object(
        &mut self,
        sets: &[SelectionPart<'a>],
        object: &R::Object,
    ) -> Result<Value, Propagated> {
        let mut mentioned: Vec<MentionedField<'a>> = Vec::new();
        for part in sets {
            self.collect(part.set, object, part.is_skipped, &mut mentioned);
        }
        self.record_impaired(object, &mentioned);
        // Each field is at the position of its first occurrence that is not skipped (CollectFields).
        mentioned.retain(|mentioned| mentioned.wanted().is_some());
        mentioned.sort_by_key(|mentioned| mentioned.wanted().map(|(at, _)| at));
        let mut out = Map::new();
        let mut is_null = false;
        for mentioned in mentioned {
            let Some((_, field)) = mentioned.wanted() else { continue };
            let key = mentioned.key;
            self.path.push(json!(key));
            let arguments = self.arguments(field);
            let is_denied = self.resolver.is_denied_field(object, field);
            let (mut resolved, ty) = self.resolver.resolve(object, field, arguments);
            if is_denied {
                resolved = Resolved::Error(DENIED.to_owned());
            }
            let part = |&(_, field, is_skipped): &(usize, &'a Field, bool)| SelectionPart {
                set: &field.selection_set,
                is_skipped,
            };
            let below: Vec<SelectionPart<'a>> = mentioned.fields.iter().map(part).collect();
            // The other fields are resolved nevertheless, so that every error is known.
            match self.complete(resolved, &ty, &below) {
                Ok(value) => {
                    out.insert(key.to_owned(), value);
                }
                Err(Propagated) => is_null = true,
            }
            self.path.pop();
        }
        if is_null { Err(Propagated) } else { Ok(Value::Object(out)) }
    }

    fn complete(
        &mut self,
        resolved: Resolved<R::Object>,
        ty: &TypeRef,
        below: &[SelectionPart<'a>],
    ) -> Result<Value, Propagated> {
        let completed = match (resolved, &ty.shape) {
            (Resolved::Leaf(Value::Null), _) if ty.nullable => return Ok(Value::Null),
            (Resolved::Leaf(Value::Null), _) => self.fail("null where none may be"),
            (Resolved::Error(message), _) => self.fail(&message),
            (Resolved::List(items), TypeRefShape::List(item)) => {
                let mut out = Vec::new();
                let mut is_null = false;
                for (index, one) in items.into_iter().enumerate() {
                    self.path.push(json!(index));
                    match self.complete(one, item, below) {
                        Ok(value) => out.push(value),
                        Err(Propagated) => is_null = true,
                    }
                    self.path.pop();
                }
                if is_null { Err(Propagated) } else { Ok(Value::Array(out)) }
            }
            (Resolved::Object(object), TypeRefShape::Named(_))
                if self.resolver.is_denied_object(&object) =>
            {
                self.fail(DENIED)
            }
            (Resolved::Object(object), TypeRefShape::Named(_)) => self.object(below, &object),
            (Resolved::Leaf(value), TypeRefShape::Named(_)) => Ok(value),
            _ => self.fail("a list where none may be, or the other way round"),
        };
        match completed {
            Err(Propagated) if ty.nullable => Ok(Value::Null),
            other => other,
        }
    }

    fn fail(&mut self, message: &str) -> Result<Value, Propagated> {
        self.errors.push((self.path.clone(), message.to_owned()));
        Err(Propagated)
    }

    fn record_impaired(&mut self, object: &R::Object, mentioned: &[MentionedField<'a>]) {
        for mentioned in mentioned {
            let is_selected = mentioned.wanted().is_some();
            let Some(&(_, field, _)) = mentioned.fields.first() else { continue };
            // Selections below a skipped field are not examined.
            let is_hidden = !is_selected && !field.selection_set.is_empty();
            if is_hidden || self.resolver.depends_on_failures(object, field) {
                self.impaired.push(Impaired { path: self.path.clone(), is_selected });
            }
        }
    }

    fn collect(
        &self,
        set: &'a [Selection],
        object: &R::Object,
        is_skipped: bool,
        mentioned: &mut Vec<MentionedField<'a>>,
    ) {
        for selection in set {
            match selection {
                Selection::Field(field) => {
                    let is_skipped = is_skipped || !self.is_included(&field.directives);
                    let key = field.alias.as_ref().unwrap_or(&field.name).as_str();
                    let at = mentioned.iter().map(|known| known.fields.len()).sum();
                    match mentioned.iter_mut().find(|known| known.key == key) {
                        Some(known) => known.fields.push((at, field, is_skipped)),
                        None => {
                            mentioned.push(MentionedField {
                                key,
                                fields: vec![(at, field, is_skipped)],
                            });
                        }
                    }
                }
                Selection::InlineFragment(fragment) => {
                    let on = fragment.type_condition.as_ref();
                    let is_skipped = is_skipped || !self.is_included(&fragment.directives);
                    if on.is_none_or(|on| self.resolver.is_a(object, on)) {
                        self.collect(&fragment.selection_set, object, is_skipped, mentioned);
                    }
                }
                Selection::FragmentSpread(spread) => {
                    let Some(fragment) = self.fragments.get(spread.fragment_name.as_str()) else {
                        continue;
                    };
                    let is_skipped = is_skipped || !self.is_included(&spread.directives);
                    if self.resolver.is_a(object, &fragment.type_condition) {
                        self.collect(&fragment.selection_set, object, is_skipped, mentioned);
                    }
                }
            }
        }
    }

    fn is_included(&self, directives: &[Node<Directive>]) -> bool {
        directives.iter().all(|directive| {
            let value = directive.specified_argument_by_name("if");
            let value = value.map(|value| literal(value, &self.variables));
            value.is_none_or(|value| value == json!(directive.name == "include"))
        })
    }

    fn arguments(&self, field: &Field) -> Map<String, Value> {
        let given = field.arguments.iter().filter(|argument| match &*argument.value {
            ast::Value::Variable(name) => self.variables.contains_key(name.as_str()),
            _ => true,
        });
        given
            .map(|argument| (argument.name.to_string(), literal(&argument.value, &self.variables)))
            .collect()
    }
}

fn literal(value: &ast::Value, variables: &Map<String, Value>) -> Value {
    match value {
        ast::Value::Null => Value::Null,
        ast::Value::Enum(name) => json!(name.as_str()),
        ast::Value::Variable(name) => variables.get(name.as_str()).cloned().unwrap_or_default(),
        ast::Value::String(text) => json!(text),
        ast::Value::Float(number) => serde_json::from_str(number.as_str()).unwrap_or_default(),
        ast::Value::Int(number) => serde_json::from_str(number.as_str()).unwrap_or_default(),
        ast::Value::Boolean(value) => json!(value),
        ast::Value::List(items) => items.iter().map(|item| literal(item, variables)).collect(),
        ast::Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.to_string(), literal(value, variables)))
            .collect(),
    }
}

/// Returns the type of a value that is treated as a leaf, whatever the schema declares.
pub(crate) fn any_leaf() -> TypeRef {
    TypeRef { nullable: true, shape: TypeRefShape::Named(TypeId(0)) }
}
