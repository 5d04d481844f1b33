//! Checks whether a set of requests suffices for an operation, in microseconds: for each position, in which waves
//! which subgraphs may get the object so that everything below it comes in time.

use super::model::{CoverField, CoverModel, CoverNode, JumpType, Mask, Waves};

/// Checks sets of requests for one operation.
pub(super) struct Check {
    pub(super) model: CoverModel,
    /// Masks looked at, counted over all checks.
    pub(super) work: u64,
    /// By type, class, wave in which the object is there, and wave of the request: see [`JumpType::add_timetables`].
    timetables: Vec<Mask>,
    /// By node and wave: the subgraphs that may get the object in that wave.
    in_time: Vec<Mask>,
}

impl Check {
    pub(super) fn new(model: CoverModel) -> Self {
        Self { model, work: 0, timetables: Vec::new(), in_time: Vec::new() }
    }

    /// Masks looked at by one check of requests in so many waves, at most.
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

    /// True if these requests bring all fields of the operation.
    pub(super) fn suffices(&mut self, requests: &Waves) -> bool {
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

    /// Works out, by node and wave, which subgraphs may get the object in that wave. False if some node
    /// cannot be had at all.
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
    /// Adds, by class, by the wave in which the object is there and by the wave of the request: the subgraphs
    /// that have the object after that request.
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

    /// All subgraphs that some of `holders` lead to.
    fn rows_of(&self, holders: Mask) -> Mask {
        self.classes
            .iter()
            .filter(|(class, _)| class & holders != 0)
            .fold(0, |known, (_, row)| known | row)
    }
}

/// An object that subgraphs of one class have had since `wave`.
struct HeldObject<'c> {
    /// By wave: the subgraphs that have the object after a request of that wave.
    arriving: &'c [Mask],
    wave: usize,
    waves: usize,
    /// [`Check::in_time`] of the nodes further down.
    below: &'c [Mask],
}

impl HeldObject<'_> {
    /// Those of `holders` that alone, with the requests that follow, get everything in time.
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
            let is_later_in_time = (self.wave + 1..self.waves)
                .any(|wave| self.arriving[wave] & field.by & self.fits(field, wave) != 0);
            if is_later_in_time {
                continue;
            }
            let mut able = field.by & self.fits(field, self.wave);
            if field.gated != 0 {
                able |= self.gated_in_time(field, left);
            }
            left &= able;
        }
        left
    }

    /// Those of `holders` that get a field with a resolver that must be sent other fields.
    fn gated_in_time(&self, field: &CoverField, holders: Mask) -> Mask {
        let known = |need: &Mask| {
            let later = (self.wave + 1..self.waves).find(|&wave| self.arriving[wave] & need != 0);
            later.unwrap_or(self.waves)
        };
        // When what is required is there, if the holder itself does not have it, and which holders do.
        let others = field.needs.iter().map(known).max().unwrap_or(self.wave);
        let own = field.needs.iter().fold(holders, |known, need| known & need);
        let is_in_time = |since: usize| {
            (since + 1..self.waves)
                .any(|wave| self.arriving[wave] & field.gated & self.fits(field, wave) != 0)
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

    /// The subgraphs that may have the object in `wave`, for the node below a field.
    fn fits(&self, field: &CoverField, wave: usize) -> Mask {
        field.child.map_or(Mask::MAX, |child| self.below[child * self.waves + wave])
    }
}
