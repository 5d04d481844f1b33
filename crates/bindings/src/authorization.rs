//! `authorize:` of a directive: a condition on the claims of the client's token and the arguments of the field. It is
//! read and checked when a graph is loaded, and evaluated for each subscription, publication and request.
//!
//! A condition that cannot be evaluated, because a claim or an argument is missing, allows nothing, also under `NOT`.

use execute::{ClaimPath, ClaimScalar, ClaimValues};
use graph::{AppliedDirective, ConstValue, Field};

use crate::expression::{
    CONDITIONS_MAX, Expression, LeafSyntax, Truth, list_items, read_expression,
};
use crate::template::{Arguments, Scalar, Template};

/// The maximum number of values that one condition compares with, lists in arguments expanded.
const VALUES_MAX: usize = 1_000;

/// The compiled `authorize` condition of a field.
#[derive(Debug)]
pub(crate) struct Authorization(Expression<ClaimCondition>);

/// A condition on one claim.
#[derive(Debug)]
struct ClaimCondition {
    claim: ClaimPath,
    operator: ClaimOperator,
}

#[derive(Debug)]
enum ClaimOperator {
    /// The claim, or one element of it if it is a list, equals one of the values.
    In(Vec<ClaimOperand>),
    /// The claim, a list or a string of words separated by spaces, contains all of the values.
    Contains(Vec<ClaimOperand>),
    /// The claim exists (true) or does not exist (false).
    Exists(bool),
}

/// A value that a claim is compared with.
#[derive(Debug)]
enum ClaimOperand {
    Constant(Box<str>),
    /// Text with placeholders for arguments or claims. A text of one placeholder has each of its values.
    Template(Template),
}

impl Authorization {
    /// Reads `authorize` of `directive` on `field`. `None` if every client is allowed.
    ///
    /// # Errors
    /// All errors of the condition.
    pub(crate) fn read(
        field: &Field,
        directive: &AppliedDirective,
    ) -> Result<Option<Self>, Vec<String>> {
        let condition = match directive.argument("authorize") {
            None | Some(ConstValue::Null) => return Ok(None),
            Some(condition) => condition,
        };
        read_expression(&ClaimSyntax { field }, condition)
            .map(|expression| Some(Self(expression)))
            .map_err(|errors| errors.iter().map(|error| format!("authorize: {error}")).collect())
    }

    /// Returns the claims that the condition reads.
    pub(crate) fn claims(&self) -> Vec<ClaimPath> {
        let mut paths = Vec::new();
        self.0.for_each_leaf(&mut |ClaimCondition { claim, operator }| {
            paths.push(claim.clone());
            let (ClaimOperator::In(values) | ClaimOperator::Contains(values)) = operator else {
                return;
            };
            for value in values {
                if let ClaimOperand::Template(template) = value {
                    paths.extend(template.claims().cloned());
                }
            }
        });
        paths
    }

    /// True if a client with these claims is allowed to use the field with these arguments.
    pub(crate) fn allows(&self, claims: &ClaimValues, arguments: &dyn Arguments) -> bool {
        self.0.evaluate(&|condition| condition.decide(claims, arguments)) == Truth::True
    }
}

/// The syntax of conditions on claims, for the arguments of a field.
struct ClaimSyntax<'a> {
    field: &'a Field,
}

impl LeafSyntax for ClaimSyntax<'_> {
    type Leaf = ClaimCondition;

    const OPERATORS: &'static [&'static str] = &["IN", "CONTAINS", "EXISTS"];
    const QUALIFIER: Option<&'static str> = Some("claim");
    const ONE_OPERATOR: &'static str = "a condition has exactly one of IN, CONTAINS and EXISTS with its claim, or one of AND, OR and NOT";

    fn read_leaf(
        &self,
        operator: &str,
        value: &ConstValue,
        claim: Option<&ConstValue>,
        errors: &mut Vec<String>,
    ) -> Option<ClaimCondition> {
        self.read_condition(operator, value, claim).map_err(|error| errors.push(error)).ok()
    }
}

impl ClaimSyntax<'_> {
    fn read_condition(
        &self,
        operator: &str,
        value: &ConstValue,
        claim: Option<&ConstValue>,
    ) -> Result<ClaimCondition, String> {
        let claim = claim.ok_or_else(|| format!("{operator} needs a claim"))?;
        let claim = match claim {
            ConstValue::String(text) => ClaimPath::parse(text),
            _ => None,
        };
        let claim = claim.ok_or("claim must be a name, or several with points between them")?;
        let operator = match operator {
            "IN" => ClaimOperator::In(self.read_values(value, false)?),
            "CONTAINS" => ClaimOperator::Contains(self.read_values(value, true)?),
            _ => match value {
                ConstValue::Boolean(exists) => ClaimOperator::Exists(*exists),
                _ => return Err("EXISTS must be true or false".to_owned()),
            },
        };
        Ok(ClaimCondition { claim, operator })
    }

    /// Reads the values of a condition. `may_be_lists` is true if an argument may have several values.
    fn read_values(
        &self,
        value: &ConstValue,
        may_be_lists: bool,
    ) -> Result<Vec<ClaimOperand>, String> {
        let items = list_items(value);
        if items.is_empty() || items.len() > CONDITIONS_MAX {
            return Err(format!("there must be 1 to {CONDITIONS_MAX} values"));
        }
        let read = |item: &ConstValue| match item {
            ConstValue::Int(text) | ConstValue::Float(text) | ConstValue::Enum(text) => {
                Ok(ClaimOperand::Constant(text.clone()))
            }
            ConstValue::Boolean(value) => Ok(ClaimOperand::Constant(value.to_string().into())),
            ConstValue::String(text) => self.read_template(text, may_be_lists),
            _ => Err("a value must be a string, a number or a boolean".to_owned()),
        };
        items.iter().map(read).collect()
    }

    fn read_template(&self, text: &str, may_be_lists: bool) -> Result<ClaimOperand, String> {
        let template = Template::parse(text)?;
        let arguments = &self.field.arguments;
        for path in template.paths() {
            let Some(argument) = arguments.iter().find(|it| it.name == path.argument) else {
                let names: Vec<_> = arguments.iter().map(|it| &*it.name).collect();
                let known = match names.is_empty() {
                    true => "the field has none".to_owned(),
                    false => format!("the field has {}", names.join(", ")),
                };
                return Err(format!("there is no argument {:?}; {known}", path.argument));
            };
            // Otherwise one allowed value would admit all other values of the list.
            if argument.ty.starts_with('[') && !may_be_lists {
                return Err(format!(
                    "argument {:?} is a list, of which IN would allow all if it allows one: use CONTAINS",
                    path.argument
                ));
            }
        }
        match template.is_constant() {
            true => Ok(ClaimOperand::Constant(text.into())),
            false => Ok(ClaimOperand::Template(template)),
        }
    }
}

impl ClaimCondition {
    fn decide(&self, claims: &ClaimValues, arguments: &dyn Arguments) -> Truth {
        let Self { claim: path, operator } = self;
        match operator {
            ClaimOperator::Exists(exists) => (claims.json(path).is_some() == *exists).into(),
            ClaimOperator::In(values) => {
                let Some(scalars) = claims.scalars(path) else { return Truth::Unknown };
                let is_one_of = |value: &ClaimOperand| match value.texts(arguments).as_deref() {
                    Some([text]) => scalars.iter().any(|it| equals_text(it, text)).into(),
                    // Of several values, an allowed one would admit the others.
                    _ => Truth::Unknown,
                };
                Truth::any(values.iter().map(is_one_of))
            }
            ClaimOperator::Contains(values) => {
                let Some(scalars) = claims.scalars(path) else { return Truth::Unknown };
                let is_list = claims.json(path).is_some_and(|json| json.starts_with('['));
                let has = |text: &str| match &scalars[..] {
                    [ClaimScalar::Text(words)] if !is_list => {
                        words.split(' ').any(|word| word == text)
                    }
                    all => all.iter().any(|it| equals_text(it, text)),
                };
                let has_all = |value: &ClaimOperand| match value.texts(arguments) {
                    Some(texts) if !texts.is_empty() && texts.len() <= VALUES_MAX => {
                        texts.iter().all(|text| has(text)).into()
                    }
                    _ => Truth::Unknown,
                };
                Truth::all(values.iter().map(has_all))
            }
        }
    }
}

impl ClaimOperand {
    /// Returns the texts of the value with these arguments. `None` if it cannot be compared.
    fn texts(&self, arguments: &dyn Arguments) -> Option<Vec<String>> {
        let template = match self {
            Self::Constant(text) => return Some(vec![text.to_string()]),
            Self::Template(template) => template,
        };
        match template.as_argument() {
            Some(path) => arguments.scalars(path).ok()?.into_iter().map(Scalar::text).collect(),
            None => template.text(arguments).ok().map(|text| vec![text]),
        }
    }
}

/// True if the claim equals `text`. The claim's type decides: the number 7 equals `7` and `7.0`, the string "7.0" does
/// not equal `7`.
fn equals_text(claim: &ClaimScalar, text: &str) -> bool {
    match claim {
        ClaimScalar::Text(claim) => **claim == *text,
        ClaimScalar::Boolean(claim) => text.parse() == Ok(*claim),
        ClaimScalar::Number(claim) => {
            **claim == *text
                || match (claim.parse::<i64>(), text.parse::<i64>()) {
                    (Ok(claim), Ok(text)) => claim == text,
                    // Beyond 2^53, different numbers may have the same representation.
                    _ => match (claim.parse::<f64>(), text.parse::<f64>()) {
                        (Ok(claim), Ok(text)) => {
                            claim == text
                                && claim.is_finite()
                                && claim.abs() <= (1_u64 << 53) as f64
                        }
                        _ => false,
                    },
                }
        }
    }
}

#[cfg(test)]
mod tests {
    use execute::Claims;
    use graph::Supergraph;

    use super::*;
    use crate::template::JsonArguments;

    fn read(condition: &str) -> Result<Authorization, Vec<String>> {
        let sdl = format!(
            r#"
            schema
              @link(url: "https://specs.apollo.dev/link/v1.0")
              @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
            {{ query: Query subscription: Subscription }}
            enum join__Graph {{
              EVENTS @join__graph(name: "events", url: "")
              ORDERS @join__graph(name: "orders", url: "http://orders")
            }}
            scalar Any @join__type(graph: EVENTS)
            type Query @join__type(graph: ORDERS) {{ orders: Int }}
            type Order @join__type(graph: EVENTS) {{ id: ID! }}
            type Subscription @join__type(graph: EVENTS) {{
              moved(tenant: ID, tenants: [ID!], level: Int, any: Any): Order
                @join__field(graph: EVENTS)
                @join__directive(graphs: [EVENTS], name: "events__subscribe", args: {{topics: ["a"], authorize: {condition}}})
            }}
            "#
        );
        let graph = Supergraph::from_sdl(&sdl, "s.graphql").unwrap_or_else(|it| panic!("{it}"));
        let subscription = graph.subscription.expect("a subscription type");
        let field = graph.field(graph.field_named(subscription, "moved").expect("its field"));
        let directive = field.directives.iter().find(|it| &*it.name == "events__subscribe");
        Authorization::read(field, directive.expect("a binding")).map(|it| it.expect("a condition"))
    }

    fn allows(condition: &str, claims: &str, arguments: &str) -> bool {
        let authorization = read(condition).unwrap_or_else(|errors| panic!("{errors:?}"));
        let claims = Claims::new(claims.to_owned().into());
        let values = Claims::select(claims.as_ref(), &authorization.claims());
        let arguments = JsonArguments::parse(&arguments.to_owned().into(), values.clone());
        authorization.allows(&values, &arguments.expect("an object"))
    }

    #[test]
    fn a_claim_is_one_of_the_values() {
        let tenant = r#"{claim: "tenant", IN: ["{{ args.tenant }}"]}"#;
        for (claims, arguments, expected) in [
            (r#"{"tenant":"a"}"#, r#"{"tenant":"a"}"#, true),
            (r#"{"tenant":"a"}"#, r#"{"tenant":"b"}"#, false),
            (r#"{"tenant":["b","a"]}"#, r#"{"tenant":"a"}"#, true),
            (r#"{"tenant":"a b"}"#, r#"{"tenant":"a"}"#, false),
            (r#"{"tenant":7}"#, r#"{"tenant":"7"}"#, true),
            (r#"{"tenant":"7"}"#, r#"{"tenant":7}"#, true),
            (r#"{"tenant":null}"#, r#"{"tenant":null}"#, false),
            (r#"{"tenant":""}"#, "{}", false),
            (r#"{"tenant":{"a":1}}"#, r#"{"tenant":"a"}"#, false),
            ("{}", r#"{"tenant":"a"}"#, false),
            ("nobody", r#"{"tenant":"a"}"#, false),
        ] {
            assert_eq!(allows(tenant, claims, arguments), expected, "{claims} {arguments}");
        }
        let constants = r#"{claim: "role.name", IN: ["admin", 7, true]}"#;
        for (claims, expected) in [
            (r#"{"role":{"name":"admin"}}"#, true),
            (r#"{"role":{"name":7.0}}"#, true),
            (r#"{"role":{"name":true}}"#, true),
            (r#"{"role":{"name":"user"}}"#, false),
            (r#"{"role":"admin"}"#, false),
        ] {
            assert_eq!(allows(constants, claims, "{}"), expected, "{claims}");
        }
    }

    #[test]
    fn all_values_of_a_list_argument_must_be_allowed() {
        let all = r#"{claim: "tenants", CONTAINS: ["{{ args.tenants }}"]}"#;
        let claims = r#"{"tenants":["a","b"]}"#;
        assert!(allows(all, claims, r#"{"tenants":["a"]}"#));
        assert!(allows(all, claims, r#"{"tenants":["b","a"]}"#));
        assert!(!allows(all, claims, r#"{"tenants":["a","c"]}"#));
        assert!(!allows(all, claims, r#"{"tenants":[]}"#));
        assert!(!allows(all, claims, r#"{"tenants":["a",null]}"#));
        // A custom scalar that contains a list does not bypass the check.
        let any = r#"{claim: "tenants", IN: ["{{ args.any }}"]}"#;
        assert!(allows(any, claims, r#"{"any":"a"}"#));
        assert!(!allows(any, claims, r#"{"any":["a","c"]}"#));
        assert!(!allows(any, claims, r#"{"any":{"a":"a"}}"#));
    }

    #[test]
    fn a_scope_is_a_word_of_a_string_or_an_element_of_a_list() {
        let scope = r#"{claim: "scope", CONTAINS: ["orders:read"]}"#;
        assert!(allows(scope, r#"{"scope":"openid orders:read"}"#, "{}"));
        assert!(allows(scope, r#"{"scope":["openid","orders:read"]}"#, "{}"));
        assert!(!allows(scope, r#"{"scope":"orders:readwrite orders:rea"}"#, "{}"));
        assert!(!allows(scope, r#"{"scope":["openid orders:read"]}"#, "{}"));
        let both = r#"{claim: "scope", CONTAINS: ["a", "b"]}"#;
        assert!(allows(both, r#"{"scope":"b c a"}"#, "{}"));
        assert!(!allows(both, r#"{"scope":"a c"}"#, "{}"));
    }

    #[test]
    fn a_condition_that_cannot_be_evaluated_allows_nothing() {
        let not = r#"{NOT: {claim: "tenant", IN: ["{{ args.tenant }}"]}}"#;
        assert!(allows(not, r#"{"tenant":"a"}"#, r#"{"tenant":"b"}"#));
        for (claims, arguments) in [
            (r#"{"tenant":"a"}"#, r#"{"tenant":"a"}"#),
            (r#"{"tenant":"a"}"#, "{}"),
            (r#"{"tenant":"a"}"#, r#"{"tenant":null}"#),
            ("{}", r#"{"tenant":"b"}"#),
            ("nobody", r#"{"tenant":"b"}"#),
        ] {
            assert!(!allows(not, claims, arguments), "{claims} {arguments}");
        }
        let exists = |exists| format!(r#"{{claim: "sub", EXISTS: {exists}}}"#);
        for (claims, is_there) in
            [(r#"{"sub":"u"}"#, true), (r#"{"sub":null}"#, false), ("nobody", false)]
        {
            assert_eq!(allows(&exists(true), claims, "{}"), is_there, "{claims}");
            assert_eq!(allows(&exists(false), claims, "{}"), !is_there, "{claims}");
        }
    }

    #[test]
    fn conditions_nest() {
        let condition = r#"{OR: [
            {claim: "role", IN: ["admin"]},
            {AND: [{claim: "tenant", IN: ["{{ args.tenant }}"]}, {NOT: {claim: "blocked", IN: [true]}}]}
        ]}"#;
        let tenant = r#"{"tenant":"a"}"#;
        assert!(allows(condition, r#"{"role":"admin"}"#, "{}"));
        assert!(allows(condition, r#"{"tenant":"a","blocked":false}"#, tenant));
        assert!(!allows(condition, r#"{"tenant":"a","blocked":true}"#, tenant));
        assert!(
            !allows(condition, r#"{"tenant":"a"}"#, tenant),
            "the claim `blocked` does not exist"
        );
        assert!(!allows(condition, r#"{"role":"user","tenant":"b","blocked":false}"#, tenant));
        let claims = r#"{claim: "tenant", IN: ["{{ claims.home }}"]}"#;
        assert!(allows(claims, r#"{"tenant":"a","home":"a"}"#, "{}"));
        assert!(!allows(claims, r#"{"tenant":"a","home":"b"}"#, "{}"));
    }

    #[test]
    fn an_invalid_condition_is_refused_with_the_reason() {
        let one_of = "a condition has exactly one of IN, CONTAINS and EXISTS with its claim, or one of AND, OR and NOT";
        for (condition, error) in [
            ("1", "a condition must be an object"),
            ("{}", one_of),
            (r#"{claim: "a"}"#, one_of),
            (r#"{claim: "a", IN: ["1"], CONTAINS: ["1"]}"#, one_of),
            (r#"{IN: ["1"]}"#, "IN needs a claim"),
            (r#"{claim: "a", AND: []}"#, "AND cannot be combined with claim"),
            ("{AND: []}", "AND is empty"),
            (
                r#"{claim: "a", XOR: 1}"#,
                r#""XOR" is none of IN, CONTAINS, EXISTS, AND, OR and NOT"#,
            ),
            (
                r#"{claim: "", IN: ["1"]}"#,
                "claim must be a name, or several with points between them",
            ),
            (
                r#"{claim: 7, IN: ["1"]}"#,
                "claim must be a name, or several with points between them",
            ),
            (r#"{claim: "a", IN: []}"#, "there must be 1 to 64 values"),
            (r#"{claim: "a", IN: [{b: 1}]}"#, "a value must be a string, a number or a boolean"),
            (r#"{claim: "a", EXISTS: 1}"#, "EXISTS must be true or false"),
            (
                r#"{claim: "a", IN: ["{{ args.none }}"]}"#,
                r#"there is no argument "none"; the field has tenant, tenants, level, any"#,
            ),
            (
                r#"{claim: "a", IN: ["{{ args.tenants }}"]}"#,
                r#"argument "tenants" is a list, of which IN would allow all if it allows one: use CONTAINS"#,
            ),
        ] {
            assert_eq!(
                read(condition).unwrap_err(),
                [format!("authorize: {error}")],
                "{condition}"
            );
        }
        let deep = "{NOT: ".repeat(9) + r#"{claim: "a", EXISTS: true}"# + &"}".repeat(9);
        assert!(read(&deep).unwrap_err()[0].contains("too large"));
    }

    proptest::proptest! {
        #[test]
        fn a_condition_on_a_missing_claim_never_allows_access(
            shape in proptest::collection::vec(0..5_u8, 1..6),
            argument in "[a-z]{0,3}",
        ) {
            // Any nesting of IN, CONTAINS, NOT, AND and OR over one claim that does not exist.
            let mut condition = r#"{claim: "tenant", IN: ["{{ args.tenant }}"]}"#.to_owned();
            for step in shape {
                condition = match step {
                    0 => format!("{{NOT: {condition}}}"),
                    1 => format!(r#"{{AND: [{condition}, {{NOT: {condition}}}]}}"#),
                    2 => format!("{{OR: [{condition}]}}"),
                    3 => format!("{{AND: [{condition}]}}"),
                    _ => format!(r#"{{OR: [{condition}, {{claim: "tenant", CONTAINS: ["x"]}}]}}"#),
                };
                if condition.len() > 1_000 { break }
            }
            if read(&condition).is_ok() {
                let arguments = format!(r#"{{"tenant":"{argument}"}}"#);
                let is_allowed = allows(&condition, r#"{"other":"x"}"#, &arguments);
                proptest::prop_assert!(!is_allowed);
            }
        }

        #[test]
        fn and_or_not_follow_boolean_logic_if_all_claims_exist(
            claim in "[ab]", first in "[ab]", second in "[ab]",
        ) {
            let leaf = |value: &str| format!(r#"{{claim: "t", IN: ["{value}"]}}"#);
            let claims = format!(r#"{{"t":"{claim}"}}"#);
            let holds = |condition: String| allows(&condition, &claims, "{}");
            let (one, two) = (claim == first, claim == second);
            let (a, b) = (leaf(&first), leaf(&second));
            proptest::prop_assert_eq!(holds(format!("{{AND: [{a}, {b}]}}")), one && two);
            proptest::prop_assert_eq!(holds(format!("{{OR: [{a}, {b}]}}")), one || two);
            proptest::prop_assert_eq!(holds(format!("{{NOT: {a}}}")), !one);
            proptest::prop_assert_eq!(
                holds(format!("{{NOT: {{AND: [{a}, {b}]}}}}")),
                holds(format!("{{OR: [{{NOT: {a}}}, {{NOT: {b}}}]}}"))
            );
        }
    }
}
