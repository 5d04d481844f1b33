//! The second step of compiling: infers types, refuses names that do not exist in the scope, and replaces each variable
//! by a slot.
//!
//! A variable with the members behind it, such as `request.headers["x-tenant"]` or `claims.realm_access.roles`, becomes
//! an identifier `@N`, the slot with the number N: no text can contain such a name. The same is done for presence
//! (`has(…)`, `"x" in request.headers`) and for optional access (`claims.?tenant`). Loops get a call of `@step` in
//! their condition, which counts. What the checker does not know is refused, so the interpreter meets nothing
//! unexpected.

use std::ops::Range;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};
use execute::ClaimPath;
use http::HeaderName;
use regex::{Regex, RegexBuilder};

use crate::error::CompileError;
use crate::fact::{self, Access, Fact, Slot, Type};
use crate::functions::{MATCHES, Pattern};
use crate::parser::Places;
use crate::scope::Scope;

/// The maximum nesting of a program. The interpreter recurses once per level, on the stack of a worker.
pub const DEPTH_MAX: usize = 48;

/// The maximum memory of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// The name of the slot that counts the steps of loops.
pub(crate) const STEP: &str = "@step";

/// The first characters of the name of a pattern; its number follows.
pub(crate) const PATTERN: &str = "@p";

/// The result of checking a tree.
pub(crate) struct Checked {
    pub(crate) tree: IdedExpr,
    pub(crate) slots: Vec<Slot>,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) kind: Type,
}

/// Checks a tree.
pub(crate) fn check(
    mut tree: IdedExpr,
    places: &Places<'_>,
    scope: Scope,
) -> Result<Checked, CompileError> {
    let mut checker = Checker { scope, places, slots: vec![], patterns: vec![], locals: vec![] };
    let kind = checker.check(&mut tree, 0)?;
    Ok(Checked { tree, slots: checker.slots, patterns: checker.patterns, kind })
}

struct Checker<'a> {
    scope: Scope,
    places: &'a Places<'a>,
    slots: Vec<Slot>,
    patterns: Vec<Pattern>,
    /// The variables of the loops around the current node, innermost last.
    locals: Vec<(String, Type)>,
}

/// A variable and the names behind it.
struct NamedPath {
    variable: String,
    members: Vec<String>,
    /// True if a member is accessed optionally (`.?` or `[?…]`), and with it all behind it.
    is_optional: bool,
    place: Range<usize>,
}

type Check<T = Type> = Result<T, CompileError>;

impl Checker<'_> {
    fn error<T>(&self, node: &IdedExpr, message: impl Into<String>) -> Check<T> {
        Err(CompileError::new(self.places.of(node), message))
    }

    fn check(&mut self, node: &mut IdedExpr, depth: usize) -> Check {
        if depth > DEPTH_MAX {
            let message = format!("it is nested more than {DEPTH_MAX} levels deep");
            return self.error(node, message);
        }
        if let Some(kind) = self.replace_variable(node)? {
            return Ok(kind);
        }
        let place = self.places.of(node);
        match &mut node.expr {
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Int(_) => Type::Integer,
                LiteralValue::Double(_) => Type::Float,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::Null => Type::Null,
                LiteralValue::Bytes(_) | LiteralValue::UInt(_) => {
                    let message = "bytes and unsigned numbers have no use here";
                    return Err(CompileError::new(place, message).help("write a text or a number"));
                }
            }),
            Expr::Ident(name) => {
                let local = self.locals.iter().rev().find(|(local, _)| local == name);
                match local {
                    Some((_, kind)) => Ok(*kind),
                    None => Err(self.unknown_variable(name.trim_start_matches('.'), place)),
                }
            }
            Expr::Select(select) => {
                let kind = self.check(&mut select.operand, depth + 1)?;
                let may_have = matches!(kind, Type::Map | Type::Unknown | Type::Optional);
                if !may_have {
                    let message = format!("{} has no member `{}`", kind.noun(), select.field);
                    return Err(CompileError::new(place, message));
                }
                Ok(match (select.test, kind) {
                    (true, _) => Type::Bool,
                    (false, Type::Optional) => Type::Optional,
                    (false, _) => Type::Unknown,
                })
            }
            Expr::List(list) => {
                for element in &mut list.elements {
                    self.check(element, depth + 1)?;
                }
                Ok(Type::List)
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    let EntryExpr::MapEntry(entry) = &mut entry.expr else {
                        return Err(CompileError::new(place, "an entry of a map has no key"));
                    };
                    let key = self.check(&mut entry.key, depth + 1)?;
                    if !key.may_be(Type::Text) && key != Type::Integer && key != Type::Bool {
                        let message = format!("{} cannot be the key of a map", key.noun());
                        return Err(CompileError::new(place, message));
                    }
                    self.check(&mut entry.value, depth + 1)?;
                }
                Ok(Type::Map)
            }
            Expr::Call(call) => self.check_call(call, place, depth),
            Expr::Comprehension(comprehension) => self.check_loop(comprehension, place, depth),
            Expr::Struct(_) => {
                Err(CompileError::new(place, "there are no types with members of their own")
                    .help("write a map: `{\"name\": value}`"))
            }
            Expr::Unspecified => {
                Err(CompileError::new(place, "a part of the expression is missing"))
            }
        }
    }

    /// Replaces a variable with the members behind it by a slot. `None` if the node is not a variable.
    fn replace_variable(&mut self, node: &mut IdedExpr) -> Check<Option<Type>> {
        let (path, access) = match &node.expr {
            // `"name" in request.headers` and `"name" in claims`.
            Expr::Call(CallExpr { func_name, args, target: None })
                if func_name == operators::IN =>
            {
                let [name, container] = &args[..] else { return Ok(None) };
                let Some(mut path) = self.path_of(container) else { return Ok(None) };
                if !is_map_of_facts(&path) {
                    return Ok(None);
                }
                let Some(name) = literal_text(name) else {
                    return Err(self.not_constant(path.place));
                };
                path.members.push(name.to_owned());
                (path, Access::Presence)
            }
            Expr::Select(SelectExpr { operand, field, test: true }) => {
                let Some(mut path) = self.path_of(operand) else { return Ok(None) };
                path.members.push(field.clone());
                (path, Access::Presence)
            }
            _ => {
                let Some(path) = self.path_of(node) else { return self.refuse_dynamic(node) };
                let access = if path.is_optional { Access::Optional } else { Access::Value };
                (path, access)
            }
        };
        let (fact, kind) = self.fact(path)?;
        let kind = match access {
            Access::Value => kind,
            Access::Presence => Type::Bool,
            Access::Optional => Type::Optional,
        };
        let slot = Slot { fact, access };
        let index = self.slots.iter().position(|known| *known == slot).unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        });
        node.expr = Expr::Ident(format!("@{index}"));
        Ok(Some(kind))
    }

    /// Refuses an element of a map of facts that is not named by a constant.
    fn refuse_dynamic(&self, node: &IdedExpr) -> Check<Option<Type>> {
        let Expr::Call(call) = &node.expr else { return Ok(None) };
        if ![operators::INDEX, operators::OPT_INDEX].contains(&call.func_name.as_str()) {
            return Ok(None);
        }
        let path = call.args.first().and_then(|container| self.path_of(container));
        match path {
            Some(path) if is_map_of_facts(&path) => Err(self.not_constant(path.place)),
            _ => Ok(None),
        }
    }

    fn not_constant(&self, place: Range<usize>) -> CompileError {
        CompileError::new(place, "a header or claim must be named by a constant text")
            .help("write the name in quotes: `request.headers[\"x-tenant\"]`, `claims.tenant`")
    }

    /// Returns the variable of a node with all constant members behind it; `None` if the node is something else.
    fn path_of(&self, node: &IdedExpr) -> Option<NamedPath> {
        match &node.expr {
            Expr::Ident(name) => {
                let name = name.trim_start_matches('.');
                let is_local = self.locals.iter().any(|(local, _)| local == name);
                (!is_local && fact::is_variable(name)).then(|| NamedPath {
                    variable: name.to_owned(),
                    members: Vec::new(),
                    is_optional: false,
                    place: self.places.of(node),
                })
            }
            Expr::Select(SelectExpr { operand, field, test: false }) => {
                let mut path = self.path_of(operand)?;
                path.members.push(field.clone());
                Some(path)
            }
            Expr::Call(CallExpr { func_name, args, target: None }) => {
                let is_optional = match func_name.as_str() {
                    operators::INDEX => false,
                    operators::OPT_INDEX | operators::OPT_SELECT => true,
                    _ => return None,
                };
                let [container, name] = &args[..] else { return None };
                let mut path = self.path_of(container)?;
                path.members.push(literal_text(name)?.to_owned());
                path.is_optional |= is_optional;
                Some(path)
            }
            _ => None,
        }
    }

    /// Returns the fact at a path, with its type.
    fn fact(&self, path: NamedPath) -> Check<(Fact, Type)> {
        let place = path.place;
        let variable = path.variable.as_str();
        if !fact::variables(self.scope).contains(&variable) {
            let message = format!("`{variable}` does not exist here");
            return Err(CompileError::new(place, message).help(self.known_variables()));
        }
        let names: Vec<_> = path.members.iter().map(String::as_str).collect();
        let has_headers = variable == "request" || self.scope.has_response();
        match (variable, &names[..]) {
            ("claims", []) => Err(CompileError::new(place, "`claims` has many members: name one")
                .help("write `claims.sub`, or `claims[\"https://example.com/tenant\"]`")),
            ("claims", names) => match ClaimPath::new(names.iter().copied()) {
                Some(claim) => Ok((Fact::Claim(claim), Type::Unknown)),
                None => Err(CompileError::new(place, "the name of a claim is empty")),
            },
            ("request" | "response", ["headers"]) if has_headers => {
                Err(CompileError::new(place, "there are many headers: name one")
                    .help(format!("write `{variable}.headers[\"x-tenant\"]`")))
            }
            ("request" | "response", ["headers", name]) if has_headers => {
                let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
                    return Err(CompileError::new(place, "this is not the name of a header"));
                };
                if header.as_str() != *name {
                    let message = "names of headers are in lower case";
                    let place = self.places.of_member(&place, name);
                    return Err(CompileError::new(place, message).help(format!(
                        "write `{header}`; the case of the request does not matter"
                    )));
                }
                let fact = match variable {
                    "request" => Fact::Header(header),
                    _ => Fact::ResponseHeader(header),
                };
                Ok((fact, Type::Text))
            }
            (_, []) => Err(CompileError::new(place, format!("`{variable}` is not a value"))
                .help(self.known_members(variable))),
            (_, [member]) => match fact::fixed(self.scope, variable, member) {
                Some(fact) => Ok(fact),
                None if (variable, *member) == ("operation", "cost") => {
                    let place = self.places.of_member(&place, member);
                    let message = format!("`{variable}.{member}` does not exist here");
                    Err(CompileError::new(place, message).help(
                        "the cost is known to `key` and `when` of rate limits with `unit: cost`, and to `set` in rules \
                         for request headers",
                    ))
                }
                None => {
                    let place = self.places.of_member(&place, member);
                    Err(CompileError::new(place, format!("`{variable}` has no member `{member}`"))
                        .help(self.known_members(variable)))
                }
            },
            (_, [member, further, ..]) => {
                let message = format!("`{variable}.{member}` has no member `{further}`");
                let place = self.places.of_member(&place, further);
                Err(CompileError::new(place, message).help(self.known_members(variable)))
            }
        }
    }

    fn unknown_variable(&self, name: &str, place: Range<usize>) -> CompileError {
        CompileError::new(place, format!("unknown variable `{name}`")).help(self.known_variables())
    }

    fn known_variables(&self) -> String {
        format!("the variables here are {}", quoted(&fact::variables(self.scope)))
    }

    fn known_members(&self, variable: &str) -> String {
        format!("`{variable}` has {}", quoted(&fact::members(self.scope, variable)))
    }

    fn check_call(&mut self, call: &mut CallExpr, place: Range<usize>, depth: usize) -> Check {
        if call.func_name == "matches" {
            return self.check_matches(call, place, depth);
        }
        let mut kinds = Vec::with_capacity(call.args.len());
        let target = match &mut call.target {
            Some(target) => Some(self.check(target, depth + 1)?),
            None => None,
        };
        for argument in &mut call.args {
            kinds.push(self.check(argument, depth + 1)?);
        }
        let wrong = |message: String| Err(CompileError::new(place.clone(), message));
        let name = call.func_name.as_str();
        let operator = name.trim_matches('_');
        match (name, target, &kinds[..]) {
            (operators::CONDITIONAL, None, [condition, yes, no]) => {
                require_bool(*condition, &place, "the condition before `?`")?;
                Ok(if yes == no { *yes } else { Type::Unknown })
            }
            (operators::LOGICAL_AND | operators::LOGICAL_OR, None, kinds) => {
                for kind in kinds {
                    require_bool(*kind, &place, &format!("each side of `{operator}`"))?;
                }
                Ok(Type::Bool)
            }
            (operators::LOGICAL_NOT, None, [kind]) => {
                require_bool(*kind, &place, "the value after `!`")?;
                Ok(Type::Bool)
            }
            (operators::NOT_STRICTLY_FALSE, None, [_]) => Ok(Type::Bool),
            (operators::EQUALS | operators::NOT_EQUALS, None, &[left, right]) => {
                match may_be_equal(left, right) {
                    true => Ok(Type::Bool),
                    false => wrong(format!(
                        "`{operator}` compares {} with {}, which are never equal",
                        left.noun(),
                        right.noun()
                    )),
                }
            }
            (
                operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                None,
                &[left, right],
            ) => match is_ordered(left, right) {
                true => Ok(Type::Bool),
                false => wrong(format!(
                    "`{operator}` cannot compare {} with {}",
                    left.noun(),
                    right.noun()
                )),
            },
            (operators::ADD, None, &[left, right]) => {
                let may_add = |kind: Type| {
                    kind.is_number() || matches!(kind, Type::Text | Type::List | Type::Unknown)
                };
                match (left, right) {
                    (Type::Unknown, other) | (other, Type::Unknown) if may_add(other) => Ok(other),
                    _ if left == right && may_add(left) => Ok(left),
                    _ => wrong(format!("`+` cannot add {} and {}", left.noun(), right.noun()))
                        .map_err(|error| {
                            error.help(
                                "`string(…)` makes a text of a number, `int(…)` a number of a text",
                            )
                        }),
                }
            }
            (
                operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
                None,
                &[left, right],
            ) => {
                let is_number = |kind: Type| kind.is_number() || kind == Type::Unknown;
                match (left, right) {
                    (Type::Unknown, other) | (other, Type::Unknown) if is_number(other) => {
                        Ok(other)
                    }
                    _ if left == right && left.is_number() => Ok(left),
                    _ => wrong(format!(
                        "`{operator}` needs two numbers of one type, not {} and {}",
                        left.noun(),
                        right.noun()
                    )),
                }
            }
            (operators::NEGATE, None, &[kind]) if kind.is_number() || kind == Type::Unknown => {
                Ok(kind)
            }
            (operators::IN, None, &[_, container]) => match container {
                Type::List | Type::Map | Type::Unknown => Ok(Type::Bool),
                other => wrong(format!("`in` needs a list or a map, not {}", other.noun())),
            },
            (operators::INDEX | operators::OPT_INDEX, None, &[container, _]) => match container {
                Type::List | Type::Map | Type::Unknown if name == operators::INDEX => {
                    Ok(Type::Unknown)
                }
                Type::List | Type::Map | Type::Unknown | Type::Optional => Ok(Type::Optional),
                other => wrong(format!("{} has no elements", other.noun())),
            },
            (operators::OPT_SELECT, None, &[container, _]) => match container {
                Type::Map | Type::Unknown | Type::Optional => Ok(Type::Optional),
                other => wrong(format!("{} has no members", other.noun())),
            },
            (name, target, kinds) => self.check_function(name, target, kinds, place),
        }
    }

    fn check_function(
        &self,
        name: &str,
        target: Option<Type>,
        kinds: &[Type],
        place: Range<usize>,
    ) -> Check {
        use Type::{Bool, Float, Integer, List, Map, Null, Optional, Text, Unknown};
        let is = |kind: Type, allowed: &[Type]| kind == Unknown || allowed.contains(&kind);
        let (result, fits): (Type, bool) = match (name, target, kinds) {
            ("size", None, &[kind]) | ("size", Some(kind), &[]) => {
                (Integer, is(kind, &[Text, List, Map]))
            }
            ("string", None, &[kind]) => (Text, is(kind, &[Text, Bool, Integer, Float])),
            ("int", None, &[kind]) => (Integer, is(kind, &[Text, Integer, Float])),
            ("double", None, &[kind]) => (Float, is(kind, &[Text, Integer, Float])),
            ("startsWith" | "endsWith" | "contains", Some(kind), &[part]) => {
                (Bool, is(kind, &[Text]) && is(part, &[Text]))
            }
            ("lowerAscii" | "upperAscii" | "trim", Some(kind), &[]) => (Text, is(kind, &[Text])),
            ("split", Some(kind), &[separator]) => {
                (List, is(kind, &[Text]) && is(separator, &[Text]))
            }
            ("join", Some(kind), &[separator]) => {
                (Text, is(kind, &[List]) && is(separator, &[Text]))
            }
            ("orValue", Some(kind), &[default]) => (
                Unknown,
                is(kind, &[Optional])
                    && is(default, &[Text, Bool, Integer, Float, Null, List, Map]),
            ),
            ("or", Some(kind), &[other]) => {
                (Optional, is(kind, &[Optional]) && is(other, &[Optional]))
            }
            ("hasValue", Some(kind), &[]) => (Bool, is(kind, &[Optional])),
            ("value", Some(kind), &[]) => (Unknown, is(kind, &[Optional])),
            _ => return Err(self.unknown_function(name, target.is_some(), kinds.len(), place)),
        };
        if fits {
            return Ok(result);
        }
        let arguments: Vec<_> = target.iter().chain(kinds).map(|kind| kind.noun()).collect();
        let message = format!("`{name}` cannot be applied to {}", arguments.join(" and "));
        Err(CompileError::new(place, message))
    }

    fn unknown_function(
        &self,
        name: &str,
        is_member: bool,
        arguments: usize,
        place: Range<usize>,
    ) -> CompileError {
        const GLOBAL: &[&str] = &["size", "string", "int", "double", "has"];
        const MEMBER: &[&str] = &[
            "size",
            "startsWith",
            "endsWith",
            "contains",
            "matches",
            "lowerAscii",
            "upperAscii",
            "trim",
            "split",
            "join",
            "orValue",
            "or",
            "hasValue",
            "value",
            "all",
            "exists",
            "exists_one",
            "filter",
        ];
        let name = if name.starts_with(['@', '_']) { "this operator" } else { name };
        let known = if is_member { MEMBER } else { GLOBAL };
        if GLOBAL.contains(&name) || MEMBER.contains(&name) {
            let way = match known.contains(&name) {
                true => format!("`{name}` does not take {arguments} arguments"),
                false if is_member => format!("`{name}` is not called on a value"),
                false => format!("`{name}` is called on a value"),
            };
            return CompileError::new(place, way).help(match (name, is_member) {
                ("has", _) => "write `has(claims.tenant)`".to_owned(),
                (name, false) if !known.contains(&name) => format!("write `value.{name}(…)`"),
                (name, _) => format!("write `{name}(value)` or `value.{name}(…)` as documented"),
            });
        }
        CompileError::new(place, format!("unknown function `{name}`"))
            .help(format!("the functions here are {}", quoted(known)))
    }

    /// Compiles the pattern of `text.matches("pattern")` and replaces the call.
    fn check_matches(&mut self, call: &mut CallExpr, place: Range<usize>, depth: usize) -> Check {
        let mut values: Vec<IdedExpr> = call.target.take().map(|it| *it).into_iter().collect();
        values.append(&mut call.args);
        let Ok([mut text, mut pattern]) = <[IdedExpr; 2]>::try_from(values) else {
            return Err(CompileError::new(place, "`matches` takes one pattern"));
        };
        let kind = self.check(&mut text, depth + 1)?;
        if !kind.may_be(Type::Text) {
            let message = format!("`matches` cannot be applied to {}", kind.noun());
            return Err(CompileError::new(place, message));
        }
        let Some(source) = literal_text(&pattern) else {
            return Err(CompileError::new(
                place,
                "the pattern of `matches` must be a constant text",
            ));
        };
        let compiled = compile_pattern(source)
            .map_err(|reason| CompileError::new(self.places.of(&pattern), reason))?;
        pattern.expr = Expr::Ident(format!("{PATTERN}{}", self.patterns.len()));
        self.patterns.push(Pattern(compiled));
        MATCHES.clone_into(&mut call.func_name);
        call.args = vec![text, pattern];
        Ok(Type::Bool)
    }

    fn check_loop(
        &mut self,
        it: &mut ComprehensionExpr,
        place: Range<usize>,
        depth: usize,
    ) -> Check {
        let range = self.check(&mut it.iter_range, depth + 1)?;
        if !matches!(range, Type::List | Type::Map | Type::Unknown) {
            let message = format!("{} has no elements to go through", range.noun());
            return Err(CompileError::new(place, message));
        }
        if fact::is_variable(&it.iter_var) {
            let message = format!("`{}` is the name of a variable", it.iter_var);
            return Err(CompileError::new(place, message).help("choose another name: `x`"));
        }
        if it.iter_var2.is_some() || makes_elements(it) {
            let message = "`map` is not supported, because its results could grow without a bound";
            return Err(CompileError::new(place, message)
                .help("use `all`, `exists`, `exists_one` or `filter`"));
        }
        let result = self.check(&mut it.accu_init, depth + 1)?;
        let locals = self.locals.len();
        self.locals.push((it.accu_var.clone(), result));
        self.locals.push((it.iter_var.clone(), Type::Unknown));
        let mut check = |part: &mut IdedExpr| self.check(part, depth + 1);
        let step = check(&mut it.loop_cond)
            .and_then(|_| check(&mut it.loop_step))
            .and_then(|_| check(&mut it.result));
        self.locals.truncate(locals);
        let kind = step?;
        count_steps(it);
        Ok(kind)
    }
}

/// Adds the counter of steps to a loop: to the condition of `filter`, whose loop condition the interpreter expects to
/// be constant, and to the loop condition of the others.
fn count_steps(it: &mut ComprehensionExpr) {
    let counted = match &mut it.loop_step.expr {
        Expr::Call(call)
            if call.func_name == operators::CONDITIONAL
                && matches!(it.accu_init.expr, Expr::List(_)) =>
        {
            call.args.first_mut()
        }
        _ => None,
    };
    let counted = counted.unwrap_or(&mut it.loop_cond);
    let condition = std::mem::take(counted);
    let id = condition.id;
    let step = IdedExpr { id, expr: Expr::Ident(STEP.to_owned()) };
    counted.id = id;
    counted.expr = Expr::Call(CallExpr {
        func_name: operators::LOGICAL_AND.to_owned(),
        target: None,
        args: vec![step, condition],
    });
}

/// True if a loop collects anything but its own elements, as `map` does.
fn makes_elements(it: &ComprehensionExpr) -> bool {
    fn appended(step: &Expr) -> Option<&IdedExpr> {
        let Expr::Call(call) = step else { return None };
        match (call.func_name.as_str(), &call.args[..]) {
            (operators::CONDITIONAL, [_, step, _]) => appended(&step.expr),
            (operators::ADD, [_, IdedExpr { expr: Expr::List(list), .. }]) => list.elements.first(),
            _ => None,
        }
    }
    let is_list = matches!(it.accu_init.expr, Expr::List(_));
    let element = appended(&it.loop_step.expr);
    is_list
        && !matches!(element, Some(IdedExpr { expr: Expr::Ident(name), .. }) if *name == it.iter_var)
}

/// True for the maps of facts: `request.headers`, `response.headers` and `claims`.
fn is_map_of_facts(path: &NamedPath) -> bool {
    match (path.variable.as_str(), &path.members[..]) {
        ("claims", []) => true,
        ("request" | "response", [headers]) => headers == "headers",
        _ => false,
    }
}

fn literal_text(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

fn require_bool(kind: Type, place: &Range<usize>, part: &str) -> Check<()> {
    if kind.may_be(Type::Bool) {
        return Ok(());
    }
    let message = format!("{part} must be `true` or `false`, not {}", kind.noun());
    Err(CompileError::new(place.clone(), message))
}

fn may_be_equal(left: Type, right: Type) -> bool {
    let is_open = |kind| matches!(kind, Type::Unknown | Type::Null);
    let is_optional = left == Type::Optional || right == Type::Optional;
    (is_open(left) || is_open(right) || left == right || (left.is_number() && right.is_number()))
        && !(is_optional && left != right)
}

fn is_ordered(left: Type, right: Type) -> bool {
    let may_order =
        |kind: Type| kind.is_number() || matches!(kind, Type::Text | Type::Bool | Type::Unknown);
    may_order(left)
        && may_order(right)
        && (left == right
            || left == Type::Unknown
            || right == Type::Unknown
            || (left.is_number() && right.is_number()))
}

fn compile_pattern(source: &str) -> Result<Regex, String> {
    RegexBuilder::new(source).size_limit(PATTERN_BYTES_MAX).build().map_err(|error| {
        // The library prints the pattern over several lines and the reason last.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim();
        format!("the pattern is not valid: {}", reason.trim_start_matches("error: "))
    })
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, first @ [_, ..])) => format!("{} and {last}", first.join(", ")),
        _ => quoted.concat(),
    }
}
