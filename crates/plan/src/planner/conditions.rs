//! Disjunctions of conditions in the form that fields have (empty means always), and their simplification where other
//! conditions are known to hold.

use crate::Condition;

/// True if `b` holds whenever `a` holds.
fn implies(a: &Condition, b: &Condition) -> bool {
    b.all.iter().all(|needed| a.all.contains(needed))
}

/// Adds a condition to a disjunction unless it implies a known one, and removes the known ones that imply it.
pub(super) fn add_condition(into: &mut Vec<Condition>, condition: &Condition) {
    if !into.iter().any(|known| implies(condition, known)) {
        into.retain(|known| !implies(known, condition));
        into.push(condition.clone());
    }
}

/// Merges two disjunctions, for which empty means always.
pub(super) fn merge_any_of(into: &mut Vec<Condition>, other: &[Condition]) {
    if into.is_empty() || other.is_empty() {
        into.clear();
        return;
    }
    other.iter().for_each(|condition| add_condition(into, condition));
}

/// Returns the stronger of two disjunctions that conjunction hold, as far as a simple comparison finds it.
pub(super) fn stronger_of<'a>(one: &'a [Condition], other: &'a [Condition]) -> &'a [Condition] {
    let says_more = |a: &[Condition], b: &[Condition]| {
        !a.is_empty() && a.iter().all(|a| b.iter().any(|b| implies(a, b)))
    };
    if other.is_empty() || says_more(one, other) { one } else { other }
}

/// Returns the conditions that are known where one of `given` and also `more` holds.
pub(super) fn add_known(given: &[Condition], more: &Condition) -> Vec<Condition> {
    if given.is_empty() {
        return vec![more.clone()];
    }
    given.iter().filter_map(|given| conjunction(given, more)).collect()
}

/// True if `any_of` holds in any case where one of `given` holds (empty `given`: nothing is known).
pub(super) fn follows_from(any_of: &[Condition], given: &[Condition]) -> bool {
    let follows = |given: &Condition| any_of.iter().any(|it| implies(given, it));
    any_of.is_empty() || (!given.is_empty() && given.iter().all(follows))
}

/// Returns the part of `any_of` that remains to be stated where one of `given` holds (empty `given`: nothing is known).
/// The list is empty if nothing remains. `None` if `any_of` never holds there.
pub(super) fn remaining_conditions(
    any_of: &[Condition],
    given: &[Condition],
) -> Option<Vec<Condition>> {
    let [first, others @ ..] = given else { return Some(any_of.to_vec()) };
    if follows_from(any_of, given) {
        return Some(Vec::new());
    }
    let mut left = Vec::new();
    for condition in any_of {
        let contradicts = |given: &Condition| {
            given.all.iter().any(|&(id, value)| condition.all.contains(&(id, !value)))
        };
        if given.iter().all(contradicts) {
            continue;
        }
        let is_known = |literal| {
            first.all.contains(literal) && others.iter().all(|it| it.all.contains(literal))
        };
        let all = condition.all.iter().filter(|literal| !is_known(literal)).copied().collect();
        add_condition(&mut left, &Condition { all });
    }
    (!left.is_empty()).then_some(left)
}

/// Returns the conjunction of two conditions; `None` if it can never hold.
pub(super) fn conjunction(a: &Condition, b: &Condition) -> Option<Condition> {
    let mut all = a.all.clone();
    for &(variable, wanted) in &b.all {
        match all.binary_search_by_key(&variable, |(id, _)| *id) {
            Ok(at) if all[at].1 != wanted => return None,
            Ok(_) => {}
            Err(at) => all.insert(at, (variable, wanted)),
        }
    }
    Some(Condition { all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VariableId;

    /// Parses conditions: `"0 !1, 2"` means that variable 0 is true and 1 is false, or that 2 is true.
    fn conditions(text: &str) -> Vec<Condition> {
        let literal = |text: &str| {
            let number = text.trim_start_matches('!').parse().expect("a number");
            (VariableId(number), !text.starts_with('!'))
        };
        let one = |text: &str| Condition { all: text.split_whitespace().map(literal).collect() };
        text.split(',').filter(|text| !text.is_empty()).map(one).collect()
    }

    #[test]
    fn known_conditions_are_not_repeated() {
        assert_eq!(
            remaining_conditions(&conditions("0 1"), &conditions("0")),
            Some(conditions("1"))
        );
        assert_eq!(remaining_conditions(&conditions("0"), &conditions("0")), Some(Vec::new()));
        assert_eq!(remaining_conditions(&conditions("0"), &conditions("0 1")), Some(Vec::new()));
        assert_eq!(remaining_conditions(&conditions(""), &conditions("0")), Some(Vec::new()));
        assert_eq!(remaining_conditions(&conditions("0"), &conditions("")), Some(conditions("0")));
    }

    #[test]
    fn conditions_that_contradict_known_ones_never_hold() {
        assert_eq!(remaining_conditions(&conditions("!0"), &conditions("0")), None);
        assert_eq!(
            remaining_conditions(&conditions("!0 1, 2"), &conditions("0")),
            Some(conditions("2"))
        );
    }

    #[test]
    fn of_several_alternatives_only_their_common_literals_are_known() {
        assert_eq!(
            remaining_conditions(&conditions("0, 1"), &conditions("0, 1")),
            Some(Vec::new())
        );
        assert_eq!(
            remaining_conditions(&conditions("0"), &conditions("0, 1")),
            Some(conditions("0"))
        );
        assert_eq!(
            remaining_conditions(&conditions("0 2"), &conditions("0 1, 0 3")),
            Some(conditions("2"))
        );
    }

    #[test]
    fn the_stronger_of_two_implies_the_other() {
        let (weak, strong) = (conditions("0, 1"), conditions("0"));
        assert_eq!(stronger_of(&weak, &strong), &*strong);
        assert_eq!(stronger_of(&strong, &weak), &*strong);
        assert_eq!(stronger_of(&strong, &[]), &*strong);
        assert_eq!(stronger_of(&[], &strong), &*strong);
    }
}
