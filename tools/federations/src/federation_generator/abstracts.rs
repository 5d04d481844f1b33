//! Random interfaces, unions and interface objects over the existing objects.

use super::generator::FederationGenerator;
use super::model::{AbstractModel, FieldModel, JoinField, ObjectModel};

impl FederationGenerator<'_> {
    /// Adds an interface that one subgraph has as an interface object, without knowing the two entities that implement
    /// it. Another subgraph knows them, and has a key on the interface.
    pub(super) fn add_interface_object(&mut self) {
        if !self.random.one_in(3) {
            return;
        }
        let all = self.all_graphs();
        let object = *self.random.pick(&all);
        let others: Vec<usize> = all.iter().copied().filter(|&graph| graph != object).collect();
        let knowing = *self.random.pick(&others);
        let mut media = AbstractModel::new("Media", false);
        media.object = Some(object);
        media.keyed = vec![knowing, object];
        let members = ["Fox", "Gnu"];
        // Subgraphs that know the interface know all entities that implement it.
        let also: Vec<usize> = match self.random.one_in(3) {
            true => others.iter().copied().filter(|&graph| graph != knowing).take(1).collect(),
            false => Vec::new(),
        };
        let mut known_by = vec![knowing];
        known_by.extend(&also);
        let names = members.map(str::to_owned).to_vec();
        for &graph in known_by.iter().chain([&object]) {
            media.members.push((graph, names.clone()));
        }
        media.fields.push(FieldModel::new("id", "ID!", &known_by));
        media.fields[0].mentions.push(JoinField::of(object));
        let has_name = self.random.one_in(2);
        if has_name {
            media.fields.push(FieldModel::new("name", "String", &known_by));
        }
        let ty = if self.random.one_in(4) { "String!" } else { "String" };
        let mut own = vec![FieldModel::new("io0", ty, &[object])];
        if self.random.one_in(2) {
            let ty = self.wrap_type("Media".to_owned());
            own.push(FieldModel::new("io1", ty, &[object]));
        }
        if has_name && self.random.one_in(2) {
            let mut field = FieldModel::new("io2", "String", &[object]);
            field.mentions[0].requires = Some("name".to_owned());
            own.push(field);
            media.fields[1].mention_external(object);
        }
        for name in members {
            let mut presence: Vec<(usize, Vec<String>, bool)> = Vec::new();
            for &graph in &others {
                if known_by.contains(&graph) || self.random.one_in(2) {
                    presence.push((graph, vec!["id".to_owned()], true));
                }
            }
            let graphs: Vec<usize> = presence.iter().map(|(graph, _, _)| *graph).collect();
            let mut fields = vec![FieldModel::new("id", "ID!", &graphs)];
            if has_name {
                fields.push(FieldModel::new("name", "String", &known_by));
            }
            // No subgraph that knows the entity resolves these.
            fields.extend(
                own.iter().map(|field| FieldModel { mentions: Vec::new(), ..field.clone() }),
            );
            self.objects.push(ObjectModel {
                name: name.to_owned(),
                presence,
                fields,
                implements: vec![("Media".to_owned(), known_by.clone())],
                contexts: Vec::new(),
                extensions: Vec::new(),
            });
        }
        media.fields.extend(own);
        self.query.push(FieldModel::new("media", "[Media!]", &[object]));
        self.query.push(FieldModel::new("known", "Media", &[knowing]));
        self.abstracts.push(media);
    }

    pub(super) fn add_abstracts(&mut self) {
        if self.random.one_in(2) {
            self.interface();
        }
        if self.random.one_in(2) {
            self.union();
        }
    }

    fn interface(&mut self) {
        let with_name: Vec<usize> = (0..self.objects.len())
            .filter(|&index| self.objects[index].fields.iter().any(|field| field.name == "name"))
            .collect();
        if with_name.len() < 2 {
            return;
        }
        let mut chosen = self.random.some(&with_name);
        chosen.truncate(3);
        let mut pet = AbstractModel::new("Pet", false);
        let common: Vec<(String, String)> = [("id", "ID!"), ("name", "String")]
            .iter()
            .filter(|(name, _)| {
                chosen.iter().all(|&index| {
                    self.objects[index].fields.iter().any(|field| field.name == *name)
                })
            })
            .map(|(name, ty)| ((*name).to_owned(), (*ty).to_owned()))
            .collect();
        for graph in self.all_graphs() {
            let present: Vec<usize> =
                chosen.iter().copied().filter(|&index| self.objects[index].is_in(graph)).collect();
            if present.is_empty() || self.random.one_in(4) {
                continue;
            }
            let there = if self.random.one_in(3) { self.random.some(&present) } else { present };
            let fields: Vec<&(String, String)> = common
                .iter()
                .filter(|(name, _)| {
                    there.iter().all(|&index| {
                        // External fields count: the subgraph cannot resolve such a field for every member.
                        let mut fields = self.objects[index].fields.iter();
                        fields.any(|field| field.name == *name && field.is_mentioned(graph))
                    })
                })
                .collect();
            if fields.is_empty() {
                continue;
            }
            for (name, ty) in fields {
                match pet.fields.iter_mut().find(|known| known.name == *name) {
                    Some(known) => known.mentions.push(JoinField::of(graph)),
                    None => pet.fields.push(FieldModel::new(name.clone(), ty.clone(), &[graph])),
                }
            }
            let names = there.iter().map(|&index| self.objects[index].name.clone()).collect();
            pet.members.push((graph, names));
        }
        if pet.members.is_empty() {
            return;
        }
        for object in &mut self.objects {
            let by: Vec<usize> = pet
                .members
                .iter()
                .filter(|(_, members)| members.contains(&object.name))
                .map(|(graph, _)| *graph)
                .collect();
            if !by.is_empty() {
                object.implements.push((pet.name.to_owned(), by));
            }
        }
        self.abstracts.push(pet);
    }

    fn union(&mut self) {
        let mut zoo = AbstractModel::new("Zoo", true);
        for graph in self.all_graphs() {
            let present: Vec<usize> =
                (0..self.objects.len()).filter(|&it| self.objects[it].is_in(graph)).collect();
            if self.random.one_in(2) || present.is_empty() {
                continue;
            }
            let there = self.random.some(&present);
            let names = there.iter().map(|&index| self.objects[index].name.clone()).collect();
            zoo.members.push((graph, names));
        }
        if !zoo.members.is_empty() {
            self.abstracts.push(zoo);
        }
    }
}
