//! A program in C is the guest of a host in Rust, over QUIC: their schemas have one digest, and their worlds are the same in the end.
//! And the program of the book's page does what the page says.

use hecs::{Entity, World};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tidelock::policy::{Host, Owner};
use tidelock::{Checkpoint, Config, Interpolate, Networked, News, Peer, Replicate, Schema};
use tidelock_conformance::programs::{DEADLINE, Running};
use tidelock_quic::{Identity, ListenConfig, QuicTransport};

#[derive(Clone, Copy, Replicate, Interpolate, Checkpoint)]
struct Position(#[net(step = 0.01, range = -500.0..=500.0)] [f32; 2]);
#[derive(Clone, Copy, Replicate)]
struct Health(u16);
#[derive(Clone, Replicate)]
struct Label {
    #[net(max = 12)]
    text: String,
    leader: Option<Entity>,
}
#[derive(Clone, Copy, Default, Replicate)]
struct Stick(#[net(step = 0.01, range = -1.0..=1.0)] [f32; 2]);
#[derive(Clone, Copy, Default)]
struct Crate;
#[derive(Clone, Copy, Default)]
struct Player;
#[derive(Clone, Copy, Default)]
struct Rover;

fn schema() -> Schema {
    let schema = Schema::builder("three ends")
        .component::<Position>("position", |c| c.interpolate().checkpoint())
        .component::<Health>("health", |c| c.authority(Host::default()))
        .component::<Label>("label", |c| c)
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .kind::<Rover>("rover", Host::predicted())
        .input::<Stick>("stick");
    schema.build().expect("a schema without mistakes")
}

/// Compiles a program against the library that this test was built with.
fn compile(source: &str, name: &str, extra: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = std::env::current_exe().expect("the test's own path");
    let libraries = here.parent().expect("a folder");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-g", "-Wall", "-Wextra", "-Werror"]).args(extra);
    command.arg("-I").arg(root.join("include")).arg(root.join("c").join(source)).arg("-o").arg(&program);
    command.arg("-L").arg(libraries).arg(format!("-Wl,-rpath,{}", libraries.display())).args(["-ltidelock_capi", "-lm"]);
    command.status().expect("a C compiler").success().then_some(program)
}

/// Can the C compiler make programs that check themselves, and do they run here?
fn has_sanitizers() -> bool {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("probe.c"), folder.join("probe"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a temporary file");
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let made = cc.args(SANITIZERS).arg(&source).arg("-o").arg(&program).stderr(Stdio::null()).status();
    made.is_ok_and(|made| made.success()) && Command::new(program).status().is_ok_and(|ran| ran.success())
}

const SANITIZERS: [&str; 3] = ["-std=gnu11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn run(program: &Path, address: Option<&str>) -> Running {
    Running::start(Command::new(program).args(address))
}

/// The host's world as the guest prints its own.
fn lines_of(world: &World) -> Vec<String> {
    let name = |entity| world.get::<&Networked>(entity).map_or(0, |networked| networked.id().0);
    let mut entities: Vec<_> = world.query::<(Entity, &Networked)>().iter().map(|(e, n)| (n.id(), e)).collect();
    entities.sort_unstable();
    let mut lines = Vec::new();
    for (net, entity) in entities {
        let at = |v: f32| (v * 100.0).round() as i64;
        if let Ok(position) = world.get::<&Position>(entity) {
            lines.push(format!("{} position {} {}", net.0, at(position.0[0]), at(position.0[1])));
        }
        if let Ok(health) = world.get::<&Health>(entity) {
            lines.push(format!("{} health {}", net.0, health.0));
        }
        if let Ok(label) = world.get::<&Label>(entity) {
            lines.push(format!("{} label {} {}", net.0, label.text, label.leader.map_or(0, name)));
        }
    }
    lines
}

/// The host of the session, with what it knows of its guest.
struct Session {
    peer: Peer,
    world: World,
    start: Instant,
    frames: u32,
    equal: bool,
    came: bool,
    /// What it held a frame ago, and for how many frames it has.
    held: Vec<String>,
    rest: u32,
}

impl Session {
    fn frame(&mut self) {
        let (now, world) = (self.start.elapsed(), &mut self.world);
        self.peer.receive(now, world).expect("receive");
        while let Some(news) = self.peer.poll_news() {
            match news {
                News::Joined { peer: guest, .. } => {
                    let rover = self.peer.spawn(world, Rover, (Position([0.0, -20.0]), Health(7))).expect("a rover");
                    self.peer.grant(world, rover, 0, guest).expect("it is the guest's");
                    self.came = true;
                }
                News::Compared { differing, .. } => self.equal = differing.is_empty(),
                News::Refused { component, refusal, .. } => panic!("{component} was refused: {refusal}"),
                _ => {}
            }
        }
        while let Some(step) = self.peer.next_step(world) {
            for (entity, at) in step.query::<(Entity, &mut Position)>(world).iter() {
                let owner = step.owner(world, entity).unwrap_or_default();
                if owner != step.local() {
                    let Stick(stick) = step.input::<Stick>(owner).expect("an input").value;
                    (0..2).for_each(|i| at.0[i] += 0.25 * stick[i]);
                } else if step.tick().0 < 400 {
                    at.0[1] += 0.25;
                }
            }
        }
        self.frames += 1;
        if self.frames.is_multiple_of(50) {
            self.peer.compare(world).expect("the host compares");
        }
        self.peer.send(now, world).expect("send");
    }

    /// Has everything that moves come to rest, and is it the same at both ends?
    fn is_settled(&mut self) -> bool {
        let held = lines_of(&self.world);
        self.rest = if held == self.held { self.rest + 1 } else { 0 };
        self.held = held;
        let is_here = self.world.query::<&Player>().iter().next().is_some();
        self.came && is_here && self.rest > 100 && self.equal && self.peer.tick().0 > 450
    }
}

fn plays(program: &Path) {
    let transport = ListenConfig::new("127.0.0.1:0".parse().expect("an address"), Identity::generate().expect("an identity"));
    let transport = QuicTransport::listen(transport).expect("a socket");
    let address = transport.address();
    let peer = Peer::host(schema(), transport, Config::default()).expect("a host");
    let (world, start) = (World::new(), Instant::now());
    let mut session = Session { peer, world, start, frames: 0, equal: false, came: false, held: Vec::new(), rest: 0 };
    for i in 0..20 {
        let crates = (Position([i as f32, 0.0]), Health(i), Label { text: format!("crate {i}"), leader: None });
        session.peer.spawn(&mut session.world, Crate, crates).expect("a crate");
    }
    let guest = run(program, Some(&address));
    let (mut lines, mut told, mut last) = (Vec::new(), false, Vec::new());
    while session.start.elapsed() < DEADLINE && lines.last().is_none_or(|line| line != "end") {
        session.frame();
        if !told && session.is_settled() {
            let mut crates = session.world.query::<(&Crate, &mut Health)>();
            crates.iter().next().expect("a crate").1.0 = 9999;
            told = true;
            drop(crates);
            let players: Vec<_> = session.world.query::<(&Player, &Position)>().iter().map(|(_, at)| at.0[0]).collect();
            assert!(players.len() == 1 && players[0] > -90.0, "the guest's player went to the right: {players:?}");
            let rovers: Vec<_> = session.world.query::<(&Rover, &Position)>().iter().map(|(_, at)| at.0[0]).collect();
            assert!(rovers.len() == 1 && rovers[0] > 5.0, "the rover went where the guest steered it: {rovers:?}");
            last = lines_of(&session.world);
        }
        lines.extend(guest.lines(Duration::from_millis(2)));
    }
    assert_eq!(lines.last().map(String::as_str), Some("end"), "the guest came to its end; it said {lines:#?}");
    assert_eq!(lines[0], format!("digest {:016x}", schema().digest()), "the schemas are the same");
    assert!(lines[1].starts_with("drawn 2"), "it drew all positions: {}", lines[1]);
    // as it was told: when the guest has left, what it owned goes too
    let held = last;
    assert_eq!(lines[2..lines.len() - 1], held[..], "both ends hold the same world");
    assert!(held.iter().any(|line| line.contains(" label from C ")), "what the guest spawned is there");
    assert!(!held.iter().any(|line| line.ends_with(" label from C 0")), "the player names itself");
    assert!(guest.end().success(), "the guest found nothing wrong, and neither did its sanitizers");
}

#[test]
fn a_guest_in_c_holds_the_same_world() {
    plays(&compile("guest.c", "guest", &["-std=gnu11", "-O2"]).expect("it compiles without a warning"));
}

#[test]
fn a_guest_in_c_is_clean_under_sanitizers() {
    if has_sanitizers() {
        plays(&compile("guest.c", "guest-sanitized", &SANITIZERS).expect("it compiles without a warning"));
    } else {
        println!("the C compiler has no sanitizers here");
    }
}

#[test]
fn two_programs_of_the_book_see_each_other_move() {
    let program = compile("first.c", "first", &["-std=c11"]).expect("it compiles without a warning");
    let host = run(&program, None);
    let guest = run(&program, Some(&host.line()));
    for program in [&guest, &host] {
        program.draws("another's rover is at ");
        program.draws("my rover is at ");
    }
}
