//! Communicators that have members on several nodes, as one master knows them: pure,
//! `handle(event) -> effects`.
//!
//! A communicator is *open* on a node from the moment on at which its master was told, until all its members
//! everywhere have given it up; whoever makes one waits until it is open on all nodes, so nothing of it comes
//! to a node that does not know it. Its number is used again by the node that made it, once all nodes have
//! said that it is *closed* there; another node may hear of the new one before it has heard that from all,
//! and answers when it has.
//!
//! Who comes to a collective is told to a node once: at once where somebody there waits for it alone, else
//! together with all others of this node ([`Event::AllCame`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bdrun_ipc::spread::Spread;

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rank of this node made a communicator, and waits until it is open.
    Made {
        /// Its index.
        comm: u32,
        /// Its ranks.
        members: Vec<u32>,
        /// The rank.
        asker: u32,
    },
    /// Another node tells of one.
    Open {
        /// The node.
        node: u32,
        /// Its index.
        comm: u32,
        /// Its first context.
        context: u32,
        /// Its ranks.
        members: Vec<u32>,
        /// The rank that waits.
        asker: u32,
    },
    /// A node has opened what this rank made.
    Opened(u32),
    /// All members of this node have given it up.
    ClosedHere(u32),
    /// All those of that node have.
    Closed {
        /// The node.
        node: u32,
        /// Its index.
        comm: u32,
    },
    /// A member of this node came to a collective; some elsewhere wait for it alone.
    Came {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
        /// The member.
        member: u32,
        /// Members elsewhere that wait for it.
        awaited_by: Vec<u32>,
    },
    /// All of this node have come.
    AllCame {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
    },
    /// And all have left.
    AllLeft {
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell a node of a communicator that was made here.
    TellOpen {
        /// The node.
        node: u32,
        /// Its index.
        comm: u32,
        /// The rank that waits.
        asker: u32,
    },
    /// It is open on all nodes: the rank goes on.
    Answer(u32),
    /// Open one here, and tell the node that it is.
    Open {
        /// The node.
        node: u32,
        /// Its index.
        comm: u32,
        /// Its first context.
        context: u32,
        /// Its ranks.
        members: Vec<u32>,
        /// The rank that waits there.
        asker: u32,
    },
    /// Tell a node that it is closed here.
    TellClosed {
        /// The node.
        node: u32,
        /// Its index.
        comm: u32,
    },
    /// Its number, which is of this node, is free.
    Free(u32),
    /// Tell a node who has come, and who waits for each alone.
    TellCome {
        /// The node.
        node: u32,
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
        /// Who.
        members: Vec<(u32, Vec<u32>)>,
    },
    /// Tell a node that all have left.
    TellLeft {
        /// The node.
        node: u32,
        /// Index of the communicator.
        comm: u32,
        /// Number of the collective.
        number: u64,
    },
}

/// A communicator that is open here.
#[derive(Debug)]
struct Known {
    /// Its members of this node.
    here: Vec<u32>,
    /// Where its members are; empty while they are all ranks, in order.
    members: Vec<u32>,
    /// The other nodes that have some.
    nodes: Vec<u32>,
    /// Who was told to which node alone, by number of the collective.
    told: BTreeMap<u64, BTreeSet<(u32, u32)>>,
    /// Nodes on which it is closed.
    closed: BTreeSet<u32>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Book {
    spread: Spread,
    known: HashMap<u32, Known>,
    /// Of each rank that made one, by how many nodes it is not open yet.
    asking: HashMap<u32, u32>,
    /// Those that are to be opened when the one of the same number is closed.
    later: HashMap<u32, Event>,
}

impl Book {
    /// Of a node of a job, where all ranks have one communicator, number 0.
    #[must_use]
    pub fn new(spread: Spread) -> Self {
        let mut book = Self { spread, known: HashMap::new(), asking: HashMap::new(), later: HashMap::new() };
        let nodes = (0..spread.nodes).filter(|&node| node != spread.node).collect();
        let all = Known {
            here: spread.here().collect(),
            members: vec![],
            nodes,
            told: BTreeMap::new(),
            closed: BTreeSet::new(),
        };
        book.known.insert(0, all);
        book
    }

    /// Does nobody wait until something is open?
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.asking.is_empty() && self.later.is_empty()
    }

    /// How many members of a node a communicator has.
    #[must_use]
    pub fn count(&self, comm: u32, node: u32) -> u32 {
        match self.known.get(&comm) {
            Some(known) if known.members.is_empty() => self.spread.ranks_of(node).len() as u32,
            Some(known) => {
                known.members.iter().filter(|&&rank| self.spread.node_of(rank) == node).count() as u32
            }
            None => 0,
        }
    }

    fn add(&mut self, comm: u32, members: Vec<u32>) {
        let at = |rank: &u32| self.spread.node_of(*rank);
        let is_here = |(_, rank): &(u32, &u32)| at(rank) == self.spread.node;
        let here = (0..).zip(&members).filter(is_here).map(|(member, _)| member).collect();
        let nodes: BTreeSet<u32> = members.iter().map(at).filter(|&node| node != self.spread.node).collect();
        let nodes = nodes.into_iter().collect();
        let known = Known { here, members, nodes, told: BTreeMap::new(), closed: BTreeSet::new() };
        self.known.insert(comm, known);
    }

    /// What is to be done about it; in order.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Made { comm, members, asker } => {
                self.add(comm, members);
                let nodes = self.known.get(&comm).map_or(&[][..], |known| &known.nodes);
                effects.extend(nodes.iter().map(|&node| Effect::TellOpen { node, comm, asker }));
                if nodes.is_empty() {
                    effects.push(Effect::Answer(asker));
                } else {
                    self.asking.insert(asker, nodes.len() as u32);
                }
            }
            Event::Open { comm, .. } if self.known.contains_key(&comm) => {
                self.later.insert(comm, event);
            }
            Event::Open { node, comm, context, members, asker } => {
                self.add(comm, members.clone());
                effects.push(Effect::Open { node, comm, context, members, asker });
            }
            Event::Opened(asker) => {
                if let Some(left) = self.asking.get_mut(&asker) {
                    *left -= 1;
                    if *left == 0 {
                        self.asking.remove(&asker);
                        effects.push(Effect::Answer(asker));
                    }
                }
            }
            Event::ClosedHere(comm) => {
                let nodes = self.known.get(&comm).map_or(&[][..], |known| &known.nodes);
                effects.extend(nodes.iter().map(|&node| Effect::TellClosed { node, comm }));
                self.closed(comm, self.spread.node, effects);
            }
            Event::Closed { node, comm } => self.closed(comm, node, effects),
            Event::Came { comm, number, member, awaited_by } => {
                self.came(comm, number, (member, &awaited_by), effects);
            }
            Event::AllCame { comm, number } => self.all_came(comm, number, effects),
            Event::AllLeft { comm, number } => {
                let Some(known) = self.known.get_mut(&comm) else { return };
                known.told.remove(&number);
                effects.extend(known.nodes.iter().map(|&node| Effect::TellLeft { node, comm, number }));
            }
        }
    }

    fn closed(&mut self, comm: u32, node: u32, effects: &mut Vec<Effect>) {
        let Some(known) = self.known.get_mut(&comm) else { return };
        known.closed.insert(node);
        if known.closed.len() <= known.nodes.len() {
            return;
        }
        self.known.remove(&comm);
        if comm.saturating_sub(1) % self.spread.nodes == self.spread.node {
            effects.push(Effect::Free(comm));
        }
        if let Some(event) = self.later.remove(&comm) {
            self.handle(event, effects);
        }
    }

    fn came(
        &mut self,
        comm: u32,
        number: u64,
        (member, awaited_by): (u32, &[u32]),
        effects: &mut Vec<Effect>,
    ) {
        let Some(known) = self.known.get_mut(&comm) else { return };
        let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &other in awaited_by {
            let rank = known.members.get(other as usize).copied().unwrap_or(other);
            of.entry(self.spread.node_of(rank)).or_default().push(other);
        }
        let told = known.told.entry(number).or_default();
        for (node, awaited_by) in of {
            told.insert((node, member));
            effects.push(Effect::TellCome { node, comm, number, members: vec![(member, awaited_by)] });
        }
    }

    fn all_came(&self, comm: u32, number: u64, effects: &mut Vec<Effect>) {
        let Some(known) = self.known.get(&comm) else { return };
        let told = known.told.get(&number);
        for &node in &known.nodes {
            let is_new = |member: &u32| told.is_none_or(|told| !told.contains(&(node, *member)));
            let members: Vec<_> =
                known.here.iter().copied().filter(is_new).map(|member| (member, vec![])).collect();
            if !members.is_empty() {
                effects.push(Effect::TellCome { node, comm, number, members });
            }
        }
    }
}
