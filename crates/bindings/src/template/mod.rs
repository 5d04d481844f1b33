//! Templates of topics, keys and headers with arguments and claims: `orders.{{ args.id }}`,
//! `orders.{{ claims.tenant }}`. They are compiled when a graph is loaded, and rendered for each subscription and
//! publication. The provider decides which topics it accepts.
//!
//! A value stays within its own part of a topic: it may not contain a separator ([`Template::parse_topic`]), or a
//! client of tenant `acme` could reach `orders.acme.eu.7`, a topic of tenant `acme.eu`.

mod arguments;

use events::TOPIC_WILDCARDS;
use execute::ClaimPath;

pub(crate) use arguments::{
    ArgumentPath, Arguments, JsonArguments, NoTextReason, PlannedArguments, Scalar,
};

/// Characters that separate the parts of a topic wherever a template uses them. Brokers other than NATS give them no
/// meaning, but applications do.
const SEPARATORS: [char; 3] = ['.', ':', '/'];

/// The word behind a path that allows separators in its values: `{{ args.region | tokens }}`.
const SPANS_TOKENS: &str = "tokens";

/// A compiled template of a topic, key or header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Box<str>),
    Argument(ArgumentPath, ForbiddenSeparators),
}

/// The characters that the value of one placeholder may not contain.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ForbiddenSeparators {
    /// The placeholder allows several tokens.
    Allowed,
    Refused(Box<[char]>),
}

impl ForbiddenSeparators {
    fn check(&self, value: &str) -> Result<(), &'static str> {
        match self {
            Self::Refused(refused) if value.contains(&**refused) => {
                Err("it contains a character that separates the parts of this topic")
            }
            _ => Ok(()),
        }
    }
}

/// The reason why a template cannot be rendered with these arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TemplateError {
    /// The argument's value cannot be part of a topic.
    Value { path: String, reason: &'static str, is_claim: bool },
    /// The rendered text is not a valid topic.
    Topic { reason: &'static str },
    /// Lists would make more topics than are allowed.
    TooMany,
}

impl Template {
    /// Compiles `source`; the error says what is wrong with it.
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        Self::parse_parts(source, false)
    }

    /// Compiles a topic for a provider that separates tokens by `separators`. A value may contain none of them, no
    /// `.`, `:` or `/` that the text of the template contains, and not the character that divides it from a later
    /// placeholder: two clients with different values never render the same topic.
    pub(crate) fn parse_topic(source: &str, separators: &[char]) -> Result<Self, String> {
        let mut template = Self::parse_parts(source, true)?;
        let mut refused: Vec<char> = separators.to_vec();
        for part in &template.parts {
            if let Part::Text(text) = part {
                refused.extend(text.chars().filter(|it| SEPARATORS.contains(it)));
            }
        }
        refused.sort_unstable();
        refused.dedup();
        for index in 0..template.parts.len() {
            let divider = match &template.parts[index + 1..] {
                [Part::Text(text), Part::Argument(..), ..] => text.chars().next(),
                [Part::Argument(next, _), ..] => {
                    if let Part::Argument(path, _) = &template.parts[index]
                        && (path.claim.is_some() || next.claim.is_some())
                    {
                        return Err(format!(
                            "nothing divides {{{{ {path} }}}} from {{{{ {next} }}}}, so clients with different \
                             claims could reach the same topic; put a separator between them"
                        ));
                    }
                    None
                }
                _ => None,
            };
            if let Part::Argument(_, ForbiddenSeparators::Refused(characters)) =
                &mut template.parts[index]
            {
                *characters = refused.iter().copied().chain(divider).collect();
            }
        }
        Ok(template)
    }

    fn parse_parts(source: &str, is_topic: bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = source;
        while let Some((text, after)) = rest.split_once("{{") {
            if !text.is_empty() {
                parts.push(Part::Text(text.into()));
            }
            let (inside, after) =
                after.split_once("}}").ok_or_else(|| "a {{ is not closed by }}".to_owned())?;
            let (path, separators) = match inside.split_once('|') {
                Some((path, modifier)) if is_topic && modifier.trim() == SPANS_TOKENS => {
                    (path, ForbiddenSeparators::Allowed)
                }
                _ => (inside, ForbiddenSeparators::Refused(Box::default())),
            };
            parts.push(Part::Argument(ArgumentPath::parse(path.trim())?, separators));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        Ok(Self { parts })
    }

    /// Returns the arguments that it names.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &ArgumentPath> {
        self.all_paths().filter(|path| path.claim.is_none())
    }

    /// Returns the claims that it names.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &ClaimPath> {
        self.all_paths().filter_map(|path| path.claim.as_ref())
    }

    /// True if it has no placeholder, so that the text is always the same.
    pub(crate) fn is_constant(&self) -> bool {
        self.all_paths().next().is_none()
    }

    /// True if the value of a placeholder may have several tokens.
    pub(crate) fn allows_tokens(&self) -> bool {
        let allows = |part: &Part| matches!(part, Part::Argument(_, ForbiddenSeparators::Allowed));
        self.parts.iter().any(allows)
    }

    fn all_paths(&self) -> impl Iterator<Item = &ArgumentPath> {
        self.parts.iter().filter_map(|part| match part {
            Part::Argument(path, _) => Some(path),
            Part::Text(_) => None,
        })
    }

    /// Returns the argument or claim if the template consists of one placeholder only.
    pub(crate) fn as_argument(&self) -> Option<&ArgumentPath> {
        match &self.parts[..] {
            [Part::Argument(path, _)] => Some(path),
            _ => None,
        }
    }

    /// Returns the text for these arguments, or the path that has no text and the reason.
    pub(crate) fn text(
        &self,
        arguments: &dyn Arguments,
    ) -> Result<String, (&ArgumentPath, NoTextReason)> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Argument(path, _) => {
                    text.push_str(&arguments.text(path).map_err(|reason| (path, reason))?);
                }
            }
        }
        Ok(text)
    }

    /// Returns the topic with `value` in the place of every argument, for the check when a graph is loaded.
    pub(crate) fn render_with_placeholder(&self, value: &str) -> String {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => &**text,
                Part::Argument(..) => value,
            })
            .collect()
    }

    /// Returns the template in one spelling, such as `moved.{{args.id}}`.
    pub(crate) fn name(&self) -> String {
        let mut name = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Argument(path, _) => {
                    let kind = if path.claim.is_some() { "" } else { "args." };
                    name.push_str(&format!("{{{{{kind}{path}}}}}"));
                }
            }
        }
        name
    }

    /// Returns the texts around the placeholders: one more than there are placeholders. Beside arguments, the wildcards
    /// of the topic count as placeholders, because the topic of an event has other text in their place.
    pub(crate) fn texts(&self) -> Vec<String> {
        let is_constant = self.is_constant();
        let mut texts = vec![String::new()];
        for part in &self.parts {
            match part {
                Part::Text(text) => {
                    let is_wildcard = |it: char| !is_constant && TOPIC_WILDCARDS.contains(&it);
                    let mut pieces = text.split(is_wildcard);
                    let first = pieces.next().unwrap_or_default();
                    texts.last_mut().expect("there is one").push_str(first);
                    // The characters of a set, such as `[ab]`, are not in the topic of an event either.
                    texts.extend(pieces.map(|it| match it.split_once(']') {
                        Some((_, after)) => after.to_owned(),
                        None => it.to_owned(),
                    }));
                }
                Part::Argument(..) => texts.push(String::new()),
            }
        }
        texts
    }

    /// Renders the topics for these arguments: one, or with lists among them one for each combination of their values,
    /// of which there may be `most`. `check_value` decides which values are allowed; its second argument is true for a
    /// value at the start of a topic.
    pub(crate) fn render(
        &self,
        arguments: &dyn Arguments,
        most: usize,
        check_value: impl Fn(&str, bool) -> Result<(), &'static str>,
    ) -> Result<Vec<Box<str>>, TemplateError> {
        let mut topics = vec![String::new()];
        for part in &self.parts {
            match part {
                Part::Text(text) => topics.iter_mut().for_each(|topic| topic.push_str(text)),
                Part::Argument(path, separators) => {
                    let is_claim = path.claim.is_some();
                    let error =
                        |reason| TemplateError::Value { path: path.to_string(), reason, is_claim };
                    let values = arguments.texts(path).map_err(|reason| error(reason.as_str()))?;
                    if values.len().saturating_mul(topics.len()) > most {
                        return Err(TemplateError::TooMany);
                    }
                    let mut longer = Vec::with_capacity(values.len() * topics.len());
                    for topic in &topics {
                        for value in &values {
                            check_value(value, topic.is_empty()).map_err(error)?;
                            separators.check(value).map_err(error)?;
                            longer.push(format!("{topic}{value}"));
                        }
                    }
                    topics = longer;
                }
            }
        }
        Ok(topics.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use execute::ClaimValues;
    use plan::{Value, VariableId, Variables};

    use super::*;

    #[test]
    fn a_template_has_one_name_and_the_texts_around_its_placeholders() {
        for (source, name, texts) in [
            ("moved", "moved", &["moved"][..]),
            ("moved.{{ args.id }}", "moved.{{args.id}}", &["moved.", ""]),
            (
                "{{claims.tenant}}.{{ args.at.zone | tokens }}.x",
                "{{claims.tenant}}.{{args.at.zone}}.x",
                &["", ".", ".x"],
            ),
            ("moved.{{args.id}}.>", "moved.{{args.id}}.>", &["moved.", ".", ""]),
            ("*.{{args.id}}.?", "*.{{args.id}}.?", &["", ".", ".", ""]),
            ("{{args.id}}.[a-z].x", "{{args.id}}.[a-z].x", &["", ".", ".x"]),
            ("moved.>", "moved.>", &["moved.>"]),
        ] {
            let template = Template::parse_topic(source, &['.']).expect("it is right");
            assert_eq!(template.name(), name);
            assert_eq!(template.texts(), texts);
        }
    }

    fn rendered(template: &str, json: &'static str) -> Result<String, String> {
        let arguments = JsonArguments::parse(&json.into(), ClaimValues::default()).unwrap();
        Template::parse(template)
            .unwrap()
            .render(&arguments, 1, |_, _| Ok(()))
            .map(|topics| topics.concat())
            .map_err(|error| match error {
                TemplateError::Value { path, reason, .. } => format!("{path}: {reason}"),
                TemplateError::Topic { reason } => reason.to_owned(),
                TemplateError::TooMany => "too many".to_owned(),
            })
    }

    #[test]
    fn arguments_are_put_in_with_and_without_spaces() {
        let json = r#"{"id":7,"name":"a\"b","on":true,"order":{"id":"x"}}"#;
        for (template, topic) in [
            ("plain", "plain"),
            ("{{ args.id }}", "7"),
            ("o.{{args.id}}.{{  args.on  }}.e", "o.7.true.e"),
            ("o.{{ args.order.id }}", "o.x"),
            ("{{args.name}}{{args.id}}", "a\"b7"),
        ] {
            assert_eq!(rendered(template, json).as_deref(), Ok(topic), "{template}");
        }
    }

    #[test]
    fn values_that_are_no_word_are_refused_with_their_name() {
        let json = r#"{"n":null,"l":[1],"o":{"l":[]},"f":1.5,"s":"x"}"#;
        for (path, reason) in [
            ("n", "n: it is null"),
            ("n.id", "n.id: it is null"),
            ("l", "l: it is a list"),
            ("o", "o: it is an object"),
            ("o.l", "o.l: it is a list"),
            ("o.x", "o.x: it is not given"),
            ("s.x", "s.x: it is not given"),
            ("f", "f: it is a fractional number"),
            ("missing", "missing: it is not given"),
        ] {
            let template = format!("t.{{{{ args.{path} }}}}");
            assert_eq!(rendered(&template, json), Err(reason.to_owned()));
        }
    }

    #[test]
    fn lists_make_a_topic_of_each_combination() {
        let variables = Variables { values: vec![Some("[1,\"x\"]".into()), Some("[]".into())] };
        let list = |items: &[&str]| {
            Value::List(items.iter().map(|item| Value::String((*item).into())).collect())
        };
        let arguments = [
            ("ids".into(), Value::Variable(VariableId(0))),
            ("none".into(), Value::Variable(VariableId(1))),
            ("regions".into(), list(&["eu", "us"])),
            ("hole".into(), Value::List(vec![Value::Null])),
            ("one".into(), Value::Int("7".into())),
        ];
        let planned = PlannedArguments {
            arguments: &arguments,
            variables: &variables,
            claims: &ClaimValues::default(),
        };
        let render = |template: &str, most| {
            let template = Template::parse(template).unwrap();
            let topics = template.render(&planned, most, |_, _| Ok(()));
            topics.map(|topics| topics.join(" "))
        };
        let value = |path: &str, reason| {
            Err(TemplateError::Value { path: path.into(), reason, is_claim: false })
        };
        assert_eq!(render("t.{{ args.ids }}", 2), Ok("t.1 t.x".into()));
        assert_eq!(
            render("{{ args.regions }}.{{ args.one }}.{{ args.ids }}", 4),
            Ok("eu.7.1 eu.7.x us.7.1 us.7.x".into())
        );
        assert_eq!(render("{{ args.regions }}.{{ args.ids }}", 3), Err(TemplateError::TooMany));
        assert_eq!(render("{{ args.none }}", 4), value("none", "it is an empty list"));
        assert_eq!(render("{{ args.hole }}", 4), value("hole", "it contains null"));
    }

    /// The topic of `template` for the tenant of a token and an argument `id`.
    fn topic_of(
        template: &str,
        separators: &[char],
        tenant: &str,
        id: &str,
    ) -> Result<String, String> {
        let claims = execute::Claims::new(format!(r#"{{"tenant":"{tenant}"}}"#).into());
        let path = ClaimPath::parse("tenant").expect("a name");
        let claims = execute::Claims::select(claims.as_ref(), &[path]);
        let arguments = JsonArguments::parse(&format!(r#"{{"id":"{id}"}}"#).into(), claims);
        let template = Template::parse_topic(template, separators)?;
        let topics = template.render(&arguments.expect("an object"), 1, |_, _| Ok(()));
        topics.map(|it| it.concat()).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn no_two_clients_with_different_values_reach_the_same_topic() {
        for (template, separators, divider) in [
            ("t.{{ claims.tenant }}.{{ args.id }}", &['.'][..], '.'),
            ("t.{{ claims.tenant }}.{{ args.id }}", &[], '.'),
            ("t:{{ claims.tenant }}:{{ args.id }}", &[], ':'),
            ("t/{{ claims.tenant }}/{{ args.id }}", &[], '/'),
            ("t-{{ claims.tenant }}-{{ args.id }}", &[], '-'),
            ("{{ claims.tenant }}_{{ args.id }}", &[], '_'),
        ] {
            let plain = topic_of(template, separators, "acme", "7");
            assert!(plain.is_ok(), "{template}: {plain:?}");
            let tenant = topic_of(template, separators, &format!("acme{divider}eu"), "7");
            let id = topic_of(template, separators, "acme", &format!("eu{divider}7"));
            assert!(tenant.is_err() || id.is_err(), "{template}: {tenant:?} {id:?}");
            if divider == '.' || divider == ':' || divider == '/' {
                assert!(tenant.is_err() && id.is_err(), "{template}: {tenant:?} {id:?}");
            }
        }
        let adjacent = topic_of("t.{{ claims.tenant }}{{ args.id }}", &['.'], "a", "b");
        assert!(adjacent.unwrap_err().contains("nothing divides"));
    }

    #[test]
    fn a_value_has_several_tokens_where_the_template_says_so() {
        let topic = |template, id| topic_of(template, &['.'], "acme", id);
        let several = "t.{{ claims.tenant }}.{{ args.id | tokens }}";
        assert_eq!(topic(several, "eu.7").as_deref(), Ok("t.acme.eu.7"));
        assert!(topic("t.{{ args.id }}", "eu.7").is_err());
        assert!(topic("{{ args.id }}", "eu.7").is_err(), "NATS separates by points in any case");
        assert_eq!(topic_of("{{ args.id }}", &[], "a", "eu.7").as_deref(), Ok("eu.7"));
        assert_eq!(topic_of("t.{{ args.id }}", &[], "a", "x-y:z").as_deref(), Ok("t.x-y:z"));
        let other = Template::parse_topic("t.{{ args.id | upper }}", &['.']);
        assert!(other.unwrap_err().contains("is not understood"));
        let outside_of_topics = Template::parse("{{ args.id | tokens }}");
        assert!(outside_of_topics.unwrap_err().contains("is not understood"));
    }

    #[test]
    fn invalid_templates_are_refused() {
        for (source, error) in [
            ("a.{{ args.id", "a {{ is not closed by }}"),
            ("{{ id }}", "{{ id }} is not understood; write {{ args.name }}"),
            ("{{ args }}", "{{ args }} is not understood; write {{ args.name }}"),
            ("{{ args. }}", "{{ args. }} is not understood; write {{ args.name }}"),
            ("{{ args.a-b }}", "{{ args.a-b }} is not understood; write {{ args.name }}"),
            ("{{}}", "{{  }} is not understood; write {{ args.name }}"),
        ] {
            assert_eq!(Template::parse(source), Err(error.to_owned()), "{source}");
        }
    }
}
