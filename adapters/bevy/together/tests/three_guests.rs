//! A host in Rust, and as its guests a Bevy app, a program in C and a plain program in Rust, over QUIC: all four hold one world.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tidelock::{Config, News, Peer};
use tidelock_bevy::Session;
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};
use tidelock_together::{Crate, Health, Label, Plain, Position, Rover, app, held, schema};

const DEADLINE: Duration = Duration::from_secs(60);

/// Compiles the guest in C against the library that this test was built with.
fn compile() -> PathBuf {
    let capi = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../capi");
    let here = std::env::current_exe().expect("the test's own path");
    let libraries = here.parent().expect("a folder");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]);
    command.arg("-I").arg(capi.join("include")).arg(capi.join("c/guest.c")).arg("-o").arg(&program);
    command.arg("-L").arg(libraries).arg(format!("-Wl,-rpath,{}", libraries.display())).args(["-ltidelock_capi", "-lm"]);
    assert!(command.status().expect("a C compiler").success(), "it compiles without a warning");
    program
}

struct InC {
    child: Child,
    lines: Receiver<String>,
}

impl InC {
    fn start(program: &Path, address: &str) -> Self {
        let mut child = Command::new(program).arg(address).stdout(Stdio::piped()).spawn().expect("the guest starts");
        let (to, lines) = channel();
        let out = child.stdout.take().expect("its output");
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Self { child, lines }
    }
}

impl Drop for InC {
    fn drop(&mut self) {
        // it may have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The host, and what it knows of how its guests are doing.
struct Table {
    host: Plain,
    frames: u32,
    joined: usize,
    equal: Vec<bool>,
    held: Vec<String>,
    rest: u32,
}

impl Table {
    fn frame(&mut self, now: Duration) {
        for news in self.host.frame(now) {
            let Plain { peer, world, .. } = &mut self.host;
            match news {
                News::Joined { peer: guest, .. } => {
                    let rover = peer.spawn(world, Rover, (Position([0.0, -20.0]), Health(7))).expect("a rover");
                    peer.grant(world, rover, 0, guest).expect("it is the guest's");
                    self.joined += 1;
                }
                News::Compared { differing, .. } => self.equal.push(differing.is_empty()),
                News::Refused { component, refusal, .. } => panic!("{component} was refused: {refusal}"),
                _ => {}
            }
        }
        self.frames += 1;
        let held = self.host.held();
        self.rest = if held == self.held { self.rest + 1 } else { 0 };
        self.held = held;
        if self.frames.is_multiple_of(50) {
            self.equal.clear();
            self.host.peer.compare(&self.host.world).expect("the host compares");
        }
    }

    /// Has everything come to rest, with all three guests and what each has spawned, and is it the same everywhere?
    fn is_settled(&self) -> bool {
        let own = |words: &str| self.held.iter().any(|line| line.contains(words));
        let players = own("label from C") && own("label from Rust") && own("label from Bevy");
        self.joined == 3 && players && self.rest > 100 && self.equal == [true; 3] && self.host.peer.tick().0 > 450
    }
}

fn table() -> (Table, String) {
    let config = ListenConfig::new("127.0.0.1:0".parse().expect("an address"), Identity::generate().expect("an identity"));
    let transport = QuicTransport::listen(config).expect("a socket");
    let address = transport.address();
    let mut host = Plain::new(Peer::host(schema(), transport, Config::default()).expect("a host"));
    for i in 0..20_u16 {
        let what = (Position([f32::from(i), 0.0]), Health(i), Label { text: format!("crate {i}"), leader: None });
        host.peer.spawn(&mut host.world, Crate, what).expect("a crate");
    }
    (Table { host, frames: 0, joined: 0, equal: Vec::new(), held: Vec::new(), rest: 0 }, address)
}

#[test]
fn one_world_and_three_guests() {
    let (mut table, address) = table();
    let transport = || QuicTransport::join(&address, JoinConfig::default()).expect("an address");
    let mut bevy = app(transport(), Config { name: "a Bevy app".into(), ..Config::default() });
    let mut rust = Plain::new(Peer::join(schema(), transport(), Config::default()).expect("a guest"));
    let mut c = InC::start(&compile(), &address);
    let (start, mut lines, mut told) = (Instant::now(), Vec::<String>::new(), false);
    // from the last change on, until the program in C leaves with what it owns
    let (mut last, mut like_rust, mut like_bevy) = (None, false, false);
    while start.elapsed() < DEADLINE && lines.last().is_none_or(|line| line != "end") {
        table.frame(start.elapsed());
        rust.frame(start.elapsed());
        bevy.update();
        if told {
            let last = last.get_or_insert_with(|| table.held.clone());
            like_rust |= rust.held() == *last;
            like_bevy |= held(&mut bevy) == *last;
        }
        if !told && table.is_settled() {
            let mut crates = table.host.world.query::<(&Crate, &mut Health)>();
            crates.iter().next().expect("a crate").1.0 = 9999;
            told = true;
        }
        lines.extend(c.lines.recv_timeout(Duration::from_millis(2)));
    }
    assert_eq!(lines.last().map(String::as_str), Some("end"), "the guest in C came to its end; the host: {:#?}", table.held);
    assert_eq!(lines[0], format!("digest {:016x}", schema().digest()));
    let at_c = &lines[2..lines.len() - 1];
    let last = last.expect("everything came to rest");
    assert_eq!(at_c, &last[..], "the program in C");
    assert!(like_rust, "the plain guest holds {:#?}, the host {last:#?}", rust.held());
    assert!(like_bevy, "the Bevy app holds {:#?}, the host {last:#?}", held(&mut bevy));
    assert!(last.len() >= 20 * 3 + 3 * 2 + 3 * 2, "crates, rovers and players: {last:#?}");
    assert!(bevy.world_mut().non_send_mut::<Session>().take_failures().is_empty());
    assert!(c.child.wait().expect("it ends").success());
}
