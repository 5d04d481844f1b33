//! The functions of expressions: those of the standard library that `checker` lets through, and our own.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBool, CelList, CelString, DYN_TYPE, LIST_TYPE, STRING_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Env, ExecutionError};
use regex::Regex;

/// The maximum length of a text that `join` makes.
const JOINED_BYTES_MAX: usize = 64 << 10;

/// The message of the error for a text that is too long, which `evaluation` recognises.
pub(crate) const TOO_LONG: &str = "too long";

/// The name of the function that `text.matches(pattern)` becomes. No text can contain it.
pub(crate) const MATCHES: &str = "@matches";

/// Returns the environment of all programs.
pub(crate) fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(new_environment()));
    &ENVIRONMENT
}

fn new_environment() -> Env {
    let mut env = Env::stdlib();
    let text = || vec![STRING_TYPE];
    // The names are not those of the standard library, so adding them cannot fail.
    let added = env
        .add_overload(MATCHES, "matches_compiled", vec![STRING_TYPE, DYN_TYPE], matches)
        .and_then(|()| {
            env.add_member_overload("lowerAscii", "lower_ascii", STRING_TYPE, vec![], lower_ascii)
        })
        .and_then(|()| {
            env.add_member_overload("upperAscii", "upper_ascii", STRING_TYPE, vec![], upper_ascii)
        })
        .and_then(|()| env.add_member_overload("trim", "trim", STRING_TYPE, vec![], trim))
        .and_then(|()| env.add_member_overload("split", "split", STRING_TYPE, text(), split))
        .and_then(|()| env.add_member_overload("join", "join", LIST_TYPE, text(), join));
    debug_assert!(added.is_ok(), "a function is declared twice");
    env
}

/// A regular expression, compiled with the program.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(pub(crate) Regex);

static PATTERN_TYPE: Type = Type::new_unspecified_type("pattern");

impl Val for Pattern {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &PATTERN_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Pattern {}

fn text_of<'b>(args: &'b [CowVal<'_, '_>], index: usize) -> Result<&'b str, ExecutionError> {
    let text = args.get(index).and_then(|arg| arg.downcast_ref::<CelString<'_>>());
    text.map(CelString::inner).ok_or_else(ExecutionError::missing_argument_or_target)
}

fn owned<'b, 'v>(text: String) -> Result<CowVal<'b, 'v>, ExecutionError> {
    Ok(CowVal::owned(CelString::from(text)))
}

fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let text = text_of(&args, 0)?;
    let pattern = args.get(1).and_then(|arg| arg.downcast_ref::<Pattern>());
    let pattern = pattern.ok_or_else(ExecutionError::missing_argument_or_target)?;
    Ok(CowVal::owned(CelBool::from(pattern.0.is_match(text))))
}

fn lower_ascii<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    owned(text_of(&args, 0)?.to_ascii_lowercase())
}

fn upper_ascii<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    owned(text_of(&args, 0)?.to_ascii_uppercase())
}

fn trim<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    owned(text_of(&args, 0)?.trim().to_owned())
}

fn split<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let parts = text_of(&args, 0)?.split(text_of(&args, 1)?);
    let boxed = |part: &str| Box::new(CelString::from(part.to_owned())) as Box<dyn Val + 'v>;
    Ok(CowVal::owned(CelList::from(parts.map(boxed).collect::<Vec<_>>())))
}

fn join<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let list = args.first().and_then(|arg| arg.downcast_ref::<CelList<'_>>());
    let list = list.ok_or_else(ExecutionError::missing_argument_or_target)?;
    let separator = text_of(&args, 1)?;
    let mut joined = String::new();
    for (index, item) in list.inner().iter().enumerate() {
        let text = item.downcast_ref::<CelString<'_>>();
        let text = text.ok_or_else(ExecutionError::missing_argument_or_target)?.inner();
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
        if joined.len() > JOINED_BYTES_MAX {
            return Err(ExecutionError::function_error("join", TOO_LONG));
        }
    }
    owned(joined)
}
