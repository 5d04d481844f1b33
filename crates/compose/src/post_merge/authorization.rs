//! Fields that read other fields by `@requires` or `@fromContext`: they must ask of clients at least what those ask,
//! because their values tell something about them.

use apollo_compiler::{Name, ast::Selection};

use crate::{
    code::Code,
    finding::Findings,
    subgraph::{field_sets, model::SubgraphModel},
    supergraph::{MergedDirective, MergedType, SupergraphModel},
};

/// The requirements that an element has of clients.
#[derive(Clone, Default)]
struct Requirements<'a>(Vec<&'a MergedDirective>);

const DIRECTIVES: [&str; 3] = ["authenticated", "requiresScopes", "policy"];

impl<'a> Requirements<'a> {
    fn add(&mut self, directives: &'a [MergedDirective]) {
        let is_requirement =
            |it: &&MergedDirective| it.graphs.is_none() && DIRECTIVES.contains(&it.name.as_str());
        self.0.extend(directives.iter().filter(is_requirement));
    }

    /// True if these requirements hold wherever `wanted` holds: each alternative contains one of `wanted`.
    fn imply(&self, wanted: &MergedDirective) -> bool {
        self.0.iter().filter(|own| own.name == wanted.name).any(|own| {
            let (own, wanted) = (alternatives(own), alternatives(wanted));
            own.iter().all(|own| wanted.iter().any(|it| it.iter().all(|name| own.contains(name))))
        })
    }
}

fn alternatives(directive: &MergedDirective) -> Vec<Vec<&str>> {
    let list = directive.arguments.first().and_then(|(_, value)| value.as_list());
    list.unwrap_or_default()
        .iter()
        .filter_map(|it| it.as_list())
        .map(|names| names.iter().filter_map(|it| it.as_str()).collect())
        .collect()
}

/// Checks all fields with `@requires`.
pub(super) fn check(
    subgraphs: &[SubgraphModel],
    merged: &SupergraphModel,
    findings: &mut Findings<'_>,
) {
    let mut has_requirements = false;
    merged.visit_directives(&mut |it| has_requirements |= DIRECTIVES.contains(&it.name.as_str()));
    if !has_requirements {
        return;
    }
    for ty in merged.types.values() {
        for field in ty.fields.values() {
            let mut own = Requirements::default();
            own.add(&field.directives);
            own.add(&ty.directives);
            if let Some(returned) = merged.types.get(field.ty.inner_named_type()) {
                own.add(&returned.directives);
            }
            for join in &field.join_fields {
                let Some(subgraph) = join.graph.and_then(|it| subgraphs.get(it)) else { continue };
                let Some(requires) = &join.requires else { continue };
                let Ok(selections) = field_sets::parse(requires) else { continue };
                let mut needed = Vec::new();
                collect(merged, ty, &selections, &mut needed);
                let missing = needed.iter().find(|(_, wanted)| !own.imply(wanted));
                let declared = subgraph.field(&ty.name, &field.name);
                if let (Some((coordinate, wanted)), Some(declared)) = (missing, declared) {
                    findings.error(
                        Code::MISSING_TRANSITIVE_AUTH_REQUIREMENTS,
                        [subgraph.spot(&declared.name)],
                        format!(
                            "`{}.{}` requires `{coordinate}`, which is protected by `@{}`, but is not protected like it",
                            ty.name, field.name, wanted.name
                        ),
                        format!("add `@{}` to `{}.{}`, because its value may reveal the required one", wanted.name, ty.name, field.name),
                    );
                }
            }
        }
    }
}

/// Collects the requirements of all selected fields, with the coordinates of the fields.
fn collect<'a>(
    merged: &'a SupergraphModel,
    on: &'a MergedType,
    selections: &[Selection],
    needed: &mut Vec<(String, &'a MergedDirective)>,
) {
    for selection in selections {
        match selection {
            Selection::Field(it) => {
                let Some(field) = on.fields.get(&it.name) else { continue };
                let returned = merged.types.get(field.ty.inner_named_type());
                let mut requirements = Requirements::default();
                requirements.add(&field.directives);
                if let Some(returned) = returned {
                    requirements.add(&returned.directives);
                    collect(merged, returned, &it.selection_set, needed);
                }
                let coordinate = format!("{}.{}", on.name, field.name);
                needed.extend(requirements.0.into_iter().map(|it| (coordinate.clone(), it)));
            }
            Selection::InlineFragment(it) => {
                let target: Option<&Name> = it.type_condition.as_ref();
                if let Some(target) = target.map_or(Some(on), |name| merged.types.get(name)) {
                    collect(merged, target, &it.selection_set, needed);
                }
            }
            Selection::FragmentSpread(_) => {}
        }
    }
}
