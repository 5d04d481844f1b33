//! The directives that bind a root field to topics, and the reading of their argument values. The other modules of this
//! crate give the values their meaning, and `graph::event_role` names the root fields that each directive is for.

use graph::{AppliedDirective, ConstValue, EventRole};

/// The definition of a directive that binds a root field to topics.
#[derive(Debug)]
pub(crate) struct BindingDirective {
    /// The name without the `@`.
    pub(crate) name: &'static str,
    pub(crate) role: EventRole,
    /// The name of the argument with the topics, or with the only topic if the directive does not subscribe.
    pub(crate) topics: &'static str,
    /// The only kind of provider that the directive is for. `None`: any kind.
    pub(crate) provider_kind: Option<&'static str>,
    /// The other arguments, in addition to the topics and `providerId`.
    others: &'static [&'static str],
}

/// The provider of a directive that names none.
const DEFAULT_PROVIDER: &str = "default";

static DIRECTIVES: [BindingDirective; 10] = [
    BindingDirective {
        name: "edfs__natsSubscribe",
        role: EventRole::Subscribe,
        topics: "subjects",
        provider_kind: Some("nats"),
        others: &["streamConfiguration"],
    },
    BindingDirective {
        name: "edfs__natsPublish",
        role: EventRole::Publish,
        topics: "subject",
        provider_kind: Some("nats"),
        others: &[],
    },
    BindingDirective {
        name: "edfs__natsRequest",
        role: EventRole::Request,
        topics: "subject",
        provider_kind: Some("nats"),
        others: &[],
    },
    BindingDirective {
        name: "edfs__kafkaSubscribe",
        role: EventRole::Subscribe,
        topics: "topics",
        provider_kind: Some("kafka"),
        others: &[],
    },
    BindingDirective {
        name: "edfs__kafkaPublish",
        role: EventRole::Publish,
        topics: "topic",
        provider_kind: Some("kafka"),
        others: &[],
    },
    BindingDirective {
        name: "edfs__redisSubscribe",
        role: EventRole::Subscribe,
        topics: "channels",
        provider_kind: Some("redis"),
        others: &[],
    },
    BindingDirective {
        name: "edfs__redisPublish",
        role: EventRole::Publish,
        topics: "channel",
        provider_kind: Some("redis"),
        others: &[],
    },
    BindingDirective {
        name: "events__subscribe",
        role: EventRole::Subscribe,
        topics: "topics",
        provider_kind: None,
        others: &[
            "start",
            "since",
            "sequence",
            "until",
            "stream",
            "select",
            "key",
            "initial",
            "authorize",
            "invalidate",
        ],
    },
    BindingDirective {
        name: "events__publish",
        role: EventRole::Publish,
        topics: "topic",
        provider_kind: None,
        others: &["key", "headers", "stream", "authorize"],
    },
    BindingDirective {
        name: "events__request",
        role: EventRole::Request,
        topics: "topic",
        provider_kind: None,
        others: &["key", "headers", "timeout", "select", "authorize"],
    },
];

impl BindingDirective {
    /// Returns the directive with that name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        DIRECTIVES.iter().find(|it| it.name == name)
    }

    /// Returns one message for each argument of `directive` that this router does not read.
    pub(crate) fn unknown_arguments(&self, directive: &AppliedDirective) -> Vec<String> {
        let known = [&[self.topics, "providerId"], self.others].concat();
        let names = directive.arguments.iter().map(|(name, _)| &**name);
        let unknown = names.filter(|name| !known.contains(name));
        unknown
            .map(|name| {
                format!("argument {name:?} is not supported; known are {}", join_names(&known))
            })
            .collect()
    }

    /// Returns the id of the provider that `directive` names.
    pub(crate) fn provider_id<'a>(
        &self,
        directive: &'a AppliedDirective,
    ) -> Result<&'a str, String> {
        match directive.argument("providerId") {
            None | Some(ConstValue::Null) => Ok(DEFAULT_PROVIDER),
            Some(ConstValue::String(id)) => Ok(id),
            Some(_) => Err("providerId must be a string".to_owned()),
        }
    }

    /// Returns the topics that `directive` names. As everywhere in GraphQL, one value is a list of one.
    pub(crate) fn topics<'a>(
        &self,
        directive: &'a AppliedDirective,
        most: usize,
    ) -> Result<Vec<&'a str>, String> {
        let (name, several) = (self.topics, self.role == EventRole::Subscribe);
        let wanted = || match several {
            true => format!("{name} must be a list of strings"),
            false => format!("{name} must be a string"),
        };
        let topics = match directive.argument(name) {
            None | Some(ConstValue::Null) => return Err(format!("{name} is missing")),
            Some(ConstValue::String(topic)) => vec![&**topic],
            Some(ConstValue::List(items)) if several => items
                .iter()
                .map(|item| match item {
                    ConstValue::String(topic) => Ok(&**topic),
                    _ => Err(wanted()),
                })
                .collect::<Result<_, _>>()?,
            Some(_) => return Err(wanted()),
        };
        if topics.is_empty() {
            Err(format!("{name} is empty"))
        } else if topics.len() > most {
            Err(format!("{name} has {} entries; at most {most} are allowed", topics.len()))
        } else {
            Ok(topics)
        }
    }
}

/// Lists names as `"a", "b" and "c"`.
fn join_names(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// An input object in a directive's argument.
pub(crate) struct InputObject<'a> {
    name: &'a str,
    members: &'a [(Box<str>, ConstValue)],
}

impl<'a> InputObject<'a> {
    /// Reads `value`, the argument `name`, which may have only the `known` members.
    pub(crate) fn read(
        name: &'a str,
        value: &'a ConstValue,
        known: &[&str],
    ) -> Result<Self, String> {
        let ConstValue::Object(members) = value else {
            return Err(format!("{name} must be an object"));
        };
        match members.iter().find(|(member, _)| !known.contains(&&**member)) {
            Some((member, _)) => {
                Err(format!("{name} has no member {member:?}; known are {}", join_names(known)))
            }
            None => Ok(Self { name, members }),
        }
    }

    /// Returns the member, unless it is left out or null.
    pub(crate) fn get(&self, member: &str) -> Option<&'a ConstValue> {
        let value = self.members.iter().find(|(name, _)| &**name == member).map(|(_, it)| it);
        value.filter(|it| **it != ConstValue::Null)
    }

    /// Returns the member, which must be a string that is not empty.
    pub(crate) fn text(&self, member: &str) -> Result<Option<&'a str>, String> {
        match self.get(member) {
            None => Ok(None),
            Some(ConstValue::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(format!("{}.{member} must be a string that is not empty", self.name)),
        }
    }

    /// Returns the member, which must be a string that is not empty and must not be left out.
    pub(crate) fn required_text(&self, member: &str) -> Result<&'a str, String> {
        self.text(member)?.ok_or_else(|| format!("{}.{member} is missing", self.name))
    }

    /// Returns the member, which must be a whole number of 0 or more.
    pub(crate) fn number(&self, member: &str) -> Result<Option<u64>, String> {
        let wanted = || format!("{}.{member} must be a whole number of 0 or more", self.name);
        match self.get(member) {
            None => Ok(None),
            Some(ConstValue::Int(text)) => text.parse().map(Some).map_err(|_| wanted()),
            Some(_) => Err(wanted()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_of_supergraphs_knows_the_same_directives_with_the_same_roles() {
        let here: Vec<_> = DIRECTIVES.iter().map(|it| (it.name, it.role)).collect();
        let role = |name| EventRole::of_directive(name).expect("it has a role");
        let there: Vec<_> = EventRole::directives().map(|name| (name, role(name))).collect();
        assert_eq!(here, there);
    }
}
