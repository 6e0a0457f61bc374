//! Cubes that a player pushes about, as a stream to one guest, beside the plain bit packer. See the crate's README.

use clap::Parser;
use std::error::Error;
use std::process::ExitCode;
use tidelock::netcore::bits::BitWriter;
use tidelock_benches::alloc::Counting;
use tidelock_benches::meter::cpu_ns;
use tidelock_benches::packer::{Packed, decode, encode};
use tidelock_benches::recording::Recording;
use tidelock_benches::replay::{Cost, Cube, play};
use tidelock_benches::scenes::cubes;
use tidelock_benches::training::Training;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Seeds of the scenes unless one is named. Tables must be trained on others.
const SEEDS: [u64; 5] = [201, 202, 203, 204, 205];
/// Moments of which nothing is counted: a delay has come to rest by then.
const WARM_UP: usize = 24;

/// Five recordings, one after the other.
#[derive(Parser)]
struct Options {
    /// One scene only.
    #[arg(long)]
    seed: Option<u64>,
    /// Snapshots of a scene.
    #[arg(long, default_value_t = 2800)]
    snapshots: usize,
    /// How old what the guest is known to have is, in ticks.
    #[arg(long, default_value_t = 6)]
    age: u32,
    #[command(flatten)]
    training: Training,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// The packer on one recording.
#[derive(Default)]
struct PackerCost {
    bits: u64,
    /// Bodies that differ from the baseline, over all packets.
    coded: u64,
    encode: u64,
    decode: u64,
}

fn pack(recording: &Recording, age: usize) -> PackerCost {
    let moment = |n: usize| recording.moment(n).iter().map(Packed::of).collect::<Vec<_>>();
    let all: Vec<Vec<Packed>> = (0..recording.moments()).map(moment).collect();
    let (mut cost, mut w) = (PackerCost::default(), BitWriter::new());
    let mut state = Vec::new();
    for n in WARM_UP..all.len() {
        let (base, now) = (&all[n - age], &all[n]);
        w.clear();
        let start = cpu_ns();
        cost.coded += encode(base, now, &mut w) as u64;
        cost.encode += cpu_ns() - start;
        let bytes = w.to_bytes();
        cost.bits += bytes.len() as u64 * 8;
        state.clone_from(base);
        let start = cpu_ns();
        decode(&bytes, &mut state).expect("it was just written");
        cost.decode += cpu_ns() - start;
        assert!(state == *now, "the packer's packet {n} says something else");
    }
    cost
}

/// What is printed of one recording, or of the mean of several.
#[derive(Clone, Default)]
struct Line {
    kbps: f64,
    wire_kbps: f64,
    packer_kbps: f64,
    ratio: f64,
    encode_ns: f64,
    decode_ns: f64,
    packer_encode_ns: f64,
    packer_decode_ns: f64,
    coded: f64,
    parts: Vec<(String, f64)>,
}

impl Line {
    fn of(cost: &Cost, packer: &PackerCost, rate: u32) -> Self {
        let (moments, coded) = (cost.moments as f64, packer.coded.max(1) as f64);
        let kbps = |bits: f64| bits / moments * f64::from(rate) / 1000.0;
        let (own, theirs) = (cost.payload as f64 * 8.0, packer.bits as f64);
        Self {
            kbps: kbps(own),
            wire_kbps: kbps(cost.wire as f64 * 8.0),
            packer_kbps: kbps(theirs),
            ratio: own / theirs,
            encode_ns: cost.encode as f64 / coded,
            decode_ns: cost.decode as f64 / coded,
            packer_encode_ns: packer.encode as f64 / coded,
            packer_decode_ns: packer.decode as f64 / coded,
            coded: coded / moments,
            parts: cost.parts.iter().map(|(name, bits)| (name.clone(), *bits as f64 / coded)).collect(),
        }
    }

    fn mean(lines: &[Self]) -> Self {
        let of = |f: &dyn Fn(&Self) -> f64| lines.iter().map(f).sum::<f64>() / lines.len() as f64;
        Self {
            kbps: of(&|l| l.kbps),
            wire_kbps: of(&|l| l.wire_kbps),
            packer_kbps: of(&|l| l.packer_kbps),
            ratio: of(&|l| l.ratio),
            encode_ns: of(&|l| l.encode_ns),
            decode_ns: of(&|l| l.decode_ns),
            packer_encode_ns: of(&|l| l.packer_encode_ns),
            packer_decode_ns: of(&|l| l.packer_decode_ns),
            coded: of(&|l| l.coded),
            parts: lines[0].parts.iter().enumerate().map(|(i, (name, _))| (name.clone(), of(&|l: &Self| l.parts[i].1))).collect(),
        }
    }

    fn print(&self, name: &str) {
        println!(
            "{name:>6}  {:8.1} {:8.1} {:8.1} {:7.3} {:9.0} {:9.0} {:9.0} {:9.0} {:8.1}",
            self.kbps,
            self.wire_kbps,
            self.packer_kbps,
            self.ratio,
            self.encode_ns,
            self.decode_ns,
            self.packer_encode_ns,
            self.packer_decode_ns,
            self.coded,
        );
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if options.age == 0 || options.age as usize > WARM_UP || options.snapshots <= WARM_UP {
        eprintln!("--age is 1 to {WARM_UP}, and --snapshots more than {WARM_UP}");
        return Ok(ExitCode::FAILURE);
    }
    let seeds = options.seed.map_or(SEEDS.to_vec(), |seed| vec![seed]);
    if !options.json {
        println!("  seed    kbit/s     wire   packer   ratio encode ns decode ns packer: en       de    coded");
    }
    let (mut lines, mut equal) = (Vec::new(), true);
    for &seed in &seeds {
        let recording = cubes(seed, options.snapshots);
        let cost = play::<Cube>(&recording, options.age, WARM_UP, seed, &options.training)?;
        let line = Line::of(&cost, &pack(&recording, options.age as usize), recording.rate());
        equal &= cost.equal;
        if !options.json {
            line.print(&seed.to_string());
        }
        lines.push(line);
    }
    let mean = Line::mean(&lines);
    if options.json {
        println!(
            "{{\"bench\":\"cubes\",\"seeds\":{},\"kbps\":{:.1},\"packer_kbps\":{:.1},\"ratio\":{:.4},\"encode_ns\":{:.0},\
             \"decode_ns\":{:.0},\"wire_kbps\":{:.1},\"coded\":{:.1},\"age\":{},\"packer_encode_ns\":{:.0},\"packer_decode_ns\":{:.0},\
             \"equal\":{equal}}}",
            seeds.len(),
            mean.kbps,
            mean.packer_kbps,
            mean.ratio,
            mean.encode_ns,
            mean.decode_ns,
            mean.wire_kbps,
            mean.coded,
            options.age,
            mean.packer_encode_ns,
            mean.packer_decode_ns,
        );
    } else {
        mean.print("mean");
        let parts: Vec<_> = mean.parts.iter().map(|(name, bits)| format!("{name} {bits:.2}")).collect();
        println!("bits a coded cube: {}", parts.join(", "));
        println!("worlds equal: {equal}");
    }
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
