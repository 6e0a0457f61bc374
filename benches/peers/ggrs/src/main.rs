//! GGRS on the workload of the bench `rewind`: so many entities of position, rotation, velocity and health, here in plain vectors, which is as
//! good as it can be for a library that leaves saving to the game. Its sync test goes back `--depth` frames in every frame and runs
//! them again. The game's own step moves everybody, as in the bench, and is not timed.

use clap::Parser;
use ggrs::{Config, GgrsRequest, PredictRepeatLast, SessionBuilder};
use serde::{Deserialize, Serialize};
use tidelock_benches::alloc::Counting;
use tidelock_benches::meter::{Series, timed};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The sync test of GGRS.
#[derive(Parser)]
struct Options {
    /// Entities.
    #[arg(long, default_value_t = 10_000)]
    entities: usize,
    /// Frames that are taken back in every frame.
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Frames that are counted.
    #[arg(long, default_value_t = 400)]
    runs: usize,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Frames before anything is counted.
const WARM_UP: usize = 64;
/// Players.
const PLAYERS: usize = 2;

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Stick(u16);

/// The state: what four columns of a world hold.
#[derive(Clone, PartialEq)]
struct State {
    frame: i32,
    position: Vec<[f32; 3]>,
    rotation: Vec<[f32; 4]>,
    velocity: Vec<[f32; 3]>,
    health: Vec<u16>,
}

struct Game;

impl Config for Game {
    type Input = Stick;
    type InputPredictor = PredictRepeatLast;
    type State = State;
    type Address = usize;
}

impl State {
    fn new(entities: usize) -> Self {
        let value = |i: usize, k: usize| (i * 7 + k) as f32 / 16.0;
        let three = |i: usize| [0, 1, 2].map(|k| value(i, k));
        Self {
            frame: 0,
            position: (0..entities).map(three).collect(),
            rotation: (0..entities).map(|i| [0, 1, 2, 3].map(|k| value(i, k))).collect(),
            velocity: (0..entities).map(three).collect(),
            health: vec![100; entities],
        }
    }

    /// Moves everybody, and notes what the inputs were.
    fn step(&mut self, inputs: u16) {
        self.frame += 1;
        for (position, velocity) in self.position.iter_mut().zip(&self.velocity) {
            position[0] = (position[0] + velocity[0] / 60.0) % 400.0;
            position[1] = (position[1] + velocity[1] / 60.0) % 400.0;
        }
        let at = self.frame as usize % self.health.len();
        self.health[at] = inputs;
    }
}

/// All inputs of a frame in one number.
fn fold(inputs: impl Iterator<Item = Stick>) -> u16 {
    inputs.fold(0, |sum, stick| sum ^ stick.0)
}

/// What a player does in a frame.
fn stick(frame: usize, player: usize) -> Stick {
    Stick((frame * 7 + player) as u16)
}

/// What was measured, and how much of it there was.
#[derive(Default)]
struct Measured {
    /// One frame: going back, and every frame since, each with its save.
    frame: Series,
    save: Series,
    load: Series,
    saves: usize,
    loads: usize,
}

fn measure(options: &Options) -> Measured {
    let builder = SessionBuilder::<Game>::new().with_num_players(PLAYERS).expect("two players are allowed");
    let builder = builder.with_max_prediction_window(options.depth + 1).with_check_distance(options.depth);
    let mut session = builder.start_synctest_session().expect("the settings are good");
    let (mut state, mut out) = (State::new(options.entities), Measured::default());
    for frame in 0..WARM_UP + options.runs {
        if frame == WARM_UP {
            out = Measured::default();
        }
        let (requests, mut took) = timed(|| {
            for player in 0..PLAYERS {
                session.add_local_input(player, stick(frame, player)).expect("it is a local player");
            }
            session.advance_frame().expect("every frame comes out the same")
        });
        for request in requests {
            match request {
                GgrsRequest::SaveGameState { cell, frame } => {
                    let ((), reading) = timed(|| cell.save(frame, Some(state.clone()), None));
                    took += reading;
                    out.save.push(reading);
                    out.saves += 1;
                }
                GgrsRequest::LoadGameState { cell, .. } => {
                    let ((), reading) = timed(|| state = cell.load().expect("it was saved"));
                    took += reading;
                    out.load.push(reading);
                    out.loads += 1;
                }
                GgrsRequest::AdvanceFrame { inputs } => state.step(fold(inputs.iter().map(|input| input.0))),
            }
        }
        out.frame.push(took);
    }
    // going back has changed nothing
    let mut straight = State::new(options.entities);
    (0..WARM_UP + options.runs).for_each(|frame| straight.step(fold((0..PLAYERS).map(|player| stick(frame, player)))));
    assert!(state == straight, "the state came back otherwise");
    out
}

fn main() {
    let options = Options::parse();
    let m = measure(&options);
    let of = |series: &Series| series.cpu_us(0.5);
    let runs = options.runs as f64;
    let (saves, loads) = (m.saves as f64 / runs, m.loads as f64 / runs);
    if options.json {
        println!(
            "{{\"bench\":\"rewind\",\"peer\":\"ggrs 0.13\",\"n\":{},\"depth\":{},\"save_us\":{:.2},\"restore_us\":{:.2},\
             \"frame_us\":{:.2},\"saves_per_frame\":{saves:.2},\"loads_per_frame\":{loads:.2},\"allocs\":{}}}",
            options.entities,
            options.depth,
            of(&m.save),
            of(&m.load),
            of(&m.frame),
            m.frame.allocs(),
        );
    } else {
        println!("GGRS 0.13, {} entities in vectors, {} frames back in every frame; medians", options.entities, options.depth);
        println!("save                 {:9.2} us, {saves:.1} a frame", of(&m.save));
        println!("load                 {:9.2} us, {loads:.1} a frame", of(&m.load));
        println!("frame                {:9.2} us, {} allocations", of(&m.frame), m.frame.allocs());
    }
}
