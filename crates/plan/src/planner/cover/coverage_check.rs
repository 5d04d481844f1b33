//! The check whether a set of requests suffices for an operation, in microseconds: it computes, for each position, the
//! waves and subgraphs from which everything below the object arrives in time.

use super::model::{CoverField, CoverModel, CoverNode, JumpType, Mask, Waves};

/// Checks sets of requests for one operation.
pub(super) struct CoverageCheck {
    pub(super) model: CoverModel,
    /// The number of masks read, counted over all checks.
    pub(super) work: u64,
    /// Masks by type, class, wave in which the object arrives, and wave of the request: see
    /// [`JumpType::add_timetables`].
    timetables: Vec<Mask>,
    /// The subgraphs that may get the object in a wave, by node and wave.
    in_time: Vec<Mask>,
}

impl CoverageCheck {
    pub(super) fn new(model: CoverModel) -> Self {
        Self { model, work: 0, timetables: Vec::new(), in_time: Vec::new() }
    }

    /// Returns the maximum number of masks that one check of requests in `waves` waves reads.
    pub(super) fn work_of_check(&self, waves: usize) -> u64 {
        let classes = |ty: &JumpType| ty.classes.len() as u64;
        let (waves, types) = (waves as u64, &self.model.types);
        let jumps: u64 = types.iter().map(|ty| classes(ty) * classes(ty)).sum();
        let nodes = self.model.nodes.iter().map(|node| match node {
            CoverNode::Abstract { members } => members.len() as u64,
            CoverNode::Object { ty, leaves, fields, .. } => {
                classes(&types[*ty]) * (leaves.len() as u64 + fields.len() as u64 * waves / 2)
            }
        });
        waves * (jumps * waves + nodes.sum::<u64>())
    }

    /// True if these requests give all fields of the operation.
    pub(super) fn is_sufficient(&mut self, requests: &Waves) -> bool {
        let waves = requests.len();
        self.work += self.work_of_check(waves);
        let mut timetables = std::mem::take(&mut self.timetables);
        let mut in_time = std::mem::take(&mut self.in_time);
        timetables.clear();
        for ty in &self.model.types {
            ty.add_timetables(requests, &mut timetables);
        }
        in_time.clear();
        in_time.resize(self.model.nodes.len() * waves, 0);
        let is_enough = self.fill_in_time(&timetables, &mut in_time, waves)
            && self.has_roots(requests, &in_time);
        self.timetables = timetables;
        self.in_time = in_time;
        is_enough
    }

    /// Computes the subgraphs that may get the object in a wave, by node and wave. Returns false if some node cannot be
    /// resolved at all.
    fn fill_in_time(&self, timetables: &[Mask], in_time: &mut [Mask], waves: usize) -> bool {
        for (index, node) in self.model.nodes.iter().enumerate() {
            let (below, own) = in_time.split_at_mut(index * waves);
            match node {
                CoverNode::Abstract { members } => {
                    for (wave, own) in own[..waves].iter_mut().enumerate() {
                        *own = members.iter().fold(Mask::MAX, |known, &(mask, member)| {
                            known & (below[member * waves + wave] | !mask)
                        });
                    }
                }
                CoverNode::Object { ty, knows, leaves, fields } => {
                    let ty = &self.model.types[*ty];
                    let mut any = 0;
                    for (wave, own) in own[..waves].iter_mut().enumerate() {
                        for (number, &(class, _)) in ty.classes.iter().enumerate() {
                            let start = ((ty.first_class + number) * waves + wave) * waves;
                            let arriving = &timetables[start..start + waves];
                            let held = HeldObject { arriving, wave, waves, below };
                            *own |= held.in_time(leaves, fields, class & knows);
                        }
                        any |= *own;
                    }
                    if any == 0 {
                        return false;
                    }
                }
            }
        }
        true
    }

    fn has_roots(&self, requests: &Waves, in_time: &[Mask]) -> bool {
        let waves = requests.len();
        self.model.roots.iter().all(|root| {
            let asked = requests.get(1).copied().unwrap_or(0) & root.by;
            let payload = root.by & self.model.events;
            match root.child {
                None => asked | payload != 0,
                Some(child) => {
                    (waves > 1 && asked & in_time[child * waves + 1] != 0)
                        || payload & in_time[child * waves] != 0
                }
            }
        })
    }
}

impl JumpType {
    /// Adds the subgraphs that have the object after a request, by class, by the wave in which the object arrives, and
    /// by the wave of the request.
    fn add_timetables(&self, requests: &Waves, into: &mut Vec<Mask>) {
        for &(_, row) in &self.classes {
            for start in 0..requests.len() {
                let mut leads_to = row;
                for (wave, &asked) in requests.iter().enumerate() {
                    let arriving = if wave > start { asked & leads_to } else { 0 };
                    leads_to |= self.rows_of(arriving);
                    into.push(arriving);
                }
            }
        }
    }

    /// Returns all subgraphs to which some of `holders` lead.
    fn rows_of(&self, holders: Mask) -> Mask {
        self.classes
            .iter()
            .filter(|(class, _)| class & holders != 0)
            .fold(0, |known, (_, row)| known | row)
    }
}

/// An object that subgraphs of one class have had since `wave`.
struct HeldObject<'c> {
    /// The subgraphs that have the object after a request, by the wave of the request.
    arriving: &'c [Mask],
    wave: usize,
    waves: usize,
    /// The part of [`CoverageCheck::in_time`] for the nodes further down.
    below: &'c [Mask],
}

impl HeldObject<'_> {
    /// Returns those of `holders` that alone, with the following requests, get all fields in time.
    fn in_time(&self, leaves: &[Mask], fields: &[CoverField], holders: Mask) -> Mask {
        let mut left = holders;
        let later = self.arriving.iter().fold(0, |known, arriving| known | arriving);
        for by in leaves {
            if later & by == 0 {
                left &= by;
            }
        }
        for field in fields {
            if left == 0 {
                return 0;
            }
            let is_later_in_time = (self.wave + 1..self.waves).any(|wave| {
                self.arriving[wave] & field.by & self.holders_in_time(field, wave) != 0
            });
            if is_later_in_time {
                continue;
            }
            let mut able = field.by & self.holders_in_time(field, self.wave);
            if field.requiring != 0 {
                able |= self.gated_in_time(field, left);
            }
            left &= able;
        }
        left
    }

    /// Returns those of `holders` that get a field with a resolver that requires other fields.
    fn gated_in_time(&self, field: &CoverField, holders: Mask) -> Mask {
        let known = |need: &Mask| {
            let later = (self.wave + 1..self.waves).find(|&wave| self.arriving[wave] & need != 0);
            later.unwrap_or(self.waves)
        };
        // The wave in which the required fields are available to holders that lack them, and the holders that have
        // them.
        let others = field.needs.iter().map(known).max().unwrap_or(self.wave);
        let own = field.needs.iter().fold(holders, |known, need| known & need);
        let is_in_time = |since: usize| {
            (since + 1..self.waves).any(|wave| {
                self.arriving[wave] & field.requiring & self.holders_in_time(field, wave) != 0
            })
        };
        let mut able = 0;
        if own != 0 && is_in_time(self.wave) {
            able |= own;
        }
        if is_in_time(others) {
            able |= holders;
        }
        able
    }

    /// Returns the subgraphs that may have the object in `wave`, for the node below a field.
    fn holders_in_time(&self, field: &CoverField, wave: usize) -> Mask {
        field.child.map_or(Mask::MAX, |child| self.below[child * self.waves + wave])
    }
}
