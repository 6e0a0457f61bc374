//! A policy of one's own: `Turns`. An entity of such a kind is written by whoever's turn it is, time for it runs only while enough
//! people are there, and only on every second tick.
//!
//! The program plays a short game in one process and checks what the policy promises; it ends with an error if it does not hold.

use hecs::World;
use std::time::Duration;
use tidelock::policy::{Apply, Facts, Gate, GateFacts, Host, Policy, Refusal, Share};
use tidelock::{Config, News, Peer, PeerId, Replicate, Schema};
use tidelock_loopback::{Conditions, Network};

/// Whoever owns the entity has the turn; the game waits for `seats` people.
#[derive(Clone, Copy, Debug)]
struct Turns {
    seats: u32,
}

impl Policy for Turns {
    fn name(&self) -> &'static str {
        "turns"
    }

    fn share(&self, facts: Facts) -> Share {
        if facts.local == facts.owner { Share::State } else { Share::Nothing }
    }

    fn accept(&self, facts: Facts, sender: PeerId) -> Result<(), Refusal> {
        match sender {
            PeerId::HOST => Ok(()),
            _ if sender == facts.owner => Ok(()),
            _ => Err(Refusal::Policy("it is not your turn")),
        }
    }

    fn lifetime(&self, facts: Facts, who: PeerId) -> bool {
        who == facts.host
    }

    fn apply(&self, _: Facts) -> Apply {
        Apply::Set
    }

    fn gate(&self, facts: GateFacts) -> Gate {
        if facts.peers >= self.seats && facts.tick.0.is_multiple_of(2) { Gate::Run } else { Gate::Wait }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Score {
    points: u32,
}

#[derive(Clone, Copy, Default)]
struct Board;

/// Not part of the game: proves that the kind's policy is for that kind alone.
#[derive(Clone, Copy, Default)]
struct Clock;

fn schema() -> Schema {
    let schema = Schema::builder("own policy").component::<Score>("score", |c| c);
    let schema = schema.kind::<Board>("board", Turns { seats: 2 }).kind::<Clock>("clock", Host::default());
    schema.build().expect("the schema has no mistakes")
}

struct Player {
    peer: Peer,
    world: World,
    /// Steps in which the board ran here.
    moves: u32,
}

fn frame(players: &mut [Player], now: Duration) {
    for Player { peer, world, moves } in players {
        peer.receive(now, world).expect("time goes on");
        while let Some(step) = peer.next_step(world) {
            // only who has the turn gets the board, and only when its time runs
            for score in step.query::<&mut Score>(world).with::<&Board>().iter() {
                score.points += 1;
                *moves += 1;
            }
        }
        peer.send(now, world).expect("time goes on");
    }
}

fn main() {
    let network = Network::new(1);
    let host = Peer::host(schema(), network.host(), Config::default()).expect("the settings are good");
    let mut players = vec![Player { peer: host, world: World::new(), moves: 0 }];
    let tick = players[0].peer.tick_length() + Duration::from_nanos(1);
    frame(&mut players, Duration::ZERO);
    let Player { peer, world, .. } = &mut players[0];
    let board = peer.spawn(world, Board, (Score { points: 0 },)).expect("the host may");
    (1..60).for_each(|n| frame(&mut players, tick * n));
    assert_eq!(players[0].moves, 0, "alone, the host waits for a second player");

    let weather = Conditions { latency: Duration::from_millis(30), ..Conditions::default() };
    let guest = Peer::join(schema(), network.join(weather, weather), Config::default()).expect("the settings are good");
    players.push(Player { peer: guest, world: World::new(), moves: 0 });
    (60..180).for_each(|n| frame(&mut players, tick * n));
    let hosts = players[0].moves;
    assert!((50..=60).contains(&hosts), "together, it runs on every second tick: {hosts} moves");

    let guest = players[1].peer.local();
    let Player { peer, world, .. } = &mut players[0];
    peer.grant(world, board, 0, guest).expect("the guest is there");
    (180..300).for_each(|n| frame(&mut players, tick * n));
    assert_eq!(players[0].moves, hosts, "the host has given the turn away");
    assert!(players[1].moves > 40, "the guest has it: {} moves", players[1].moves);

    let points = players[0].world.get::<&Score>(board).expect("the board is there").points;
    println!("the board has {points} points: {hosts} by the host, the rest by {guest}");
    while let Some(news) = players[0].peer.poll_news() {
        assert!(!matches!(news, News::Refused { .. }), "everybody kept to the turns: {news:?}");
    }
}
