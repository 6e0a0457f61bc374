//! The picture: a function of a [`Snapshot`] and the size of the terminal, and of nothing else.

use super::snapshot::{Dot, Line, Map, Snapshot, Sort, Stage};
use crate::game::HALF;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::canvas::{Canvas, Points};
use ratatui::widgets::{Block, Clear, Paragraph};
use std::time::Duration;

/// A map is no narrower than this, borders included, while there is more than one.
const MAP_WIDTH: u16 = 19;
/// Columns of the figures of a link, before its curves.
const FIGURES: usize = 72;
const CURVE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws it all.
pub(crate) fn draw(frame: &mut Frame<'_>, s: &Snapshot) {
    let area = frame.area();
    let links = (s.lines.len() as u16 + 3).min(area.height / 4);
    let bottom = (area.height / 4).clamp(3, 12);
    let parts = [
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(links.max(4)),
        Constraint::Length(bottom),
        Constraint::Length(1),
    ];
    let [title, maps, net, bottom, keys] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(headline(s)), title);
    draw_maps(frame, maps, s);
    draw_links(frame, net, &s.lines, s.skipped);
    let [traffic, remarks] = Layout::horizontal([Constraint::Fill(1); 2]).areas(bottom);
    draw_traffic(frame, traffic, &s.traffic);
    draw_remarks(frame, remarks, &s.remarks);
    frame.render_widget(Paragraph::new(key_line(area.width)), keys);
    if s.help {
        draw_help(frame, area);
    }
}

fn headline(s: &Snapshot) -> Text<'static> {
    let (word, colour) = match s.stage {
        Stage::Gathering => ("gathering", Color::Yellow),
        Stage::Playing => ("playing", Color::Green),
        Stage::Comparing => ("comparing", Color::Yellow),
    };
    let c = &s.conditions;
    let loss = (c.loss * 100.0).round();
    let rest = format!(" {}  net: rtt {} ms, jitter {} ms, loss {loss} %", clock(s), c.latency, c.jitter);
    Text::from(vec![
        Span::styled(" arena ", Style::new().add_modifier(Modifier::REVERSED)),
        Span::raw(" "),
        Span::styled(word, Style::new().fg(colour).add_modifier(Modifier::BOLD)),
        Span::raw(rest),
    ])
}

fn clock(s: &Snapshot) -> String {
    let minutes = |time: Duration| format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60);
    match s.left {
        Some(left) => format!("{}, {} left", minutes(s.time), minutes(left)),
        None => minutes(s.time),
    }
}

/// The host's map and those of as many guests as there is room for.
fn draw_maps(frame: &mut Frame<'_>, area: Rect, s: &Snapshot) {
    let room = usize::from(area.width / MAP_WIDTH).max(1);
    let mut shown: Vec<&Map> = s.maps.iter().take(1).collect();
    let guests = s.maps.len().saturating_sub(1);
    // the last ones fill the room that there is
    let skipped = s.skipped.min((guests + 1).saturating_sub(room));
    shown.extend(s.maps.iter().skip(1 + skipped).take(room - 1));
    let hidden = s.maps.len() - shown.len();
    let areas = Layout::horizontal(vec![Constraint::Fill(1); shown.len().max(1)]).split(area);
    for (i, (map, area)) in shown.iter().zip(areas.iter()).enumerate() {
        let more = (hidden > 0 && i + 1 == shown.len()).then(|| format!(" {hidden} more: ←→ "));
        draw_map(frame, *area, map, more);
    }
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, map: &Map, more: Option<String>) {
    let mut block = Block::bordered().title(format!(" {} ", map.name));
    block = match more {
        Some(more) => block.title_bottom(more),
        None => block.title_bottom(format!(" {} entities ", map.entities)),
    };
    let bound = f64::from(HALF);
    let canvas =
        Canvas::default().block(block).marker(Marker::Braille).x_bounds([-bound, bound]).y_bounds([-bound, bound]).paint(
            |canvas| {
                for sort in Sort::ALL {
                    let of = map.dots.iter().filter(|dot| dot.sort == sort);
                    match mark(sort) {
                        Some(mark) => {
                            canvas.layer();
                            of.for_each(|dot| canvas.print(dot.x.into(), dot.y.into(), Span::styled(mark, colour(sort))));
                        }
                        None => {
                            let coords: Vec<(f64, f64)> = of.map(|Dot { x, y, .. }| ((*x).into(), (*y).into())).collect();
                            canvas.draw(&Points { coords: &coords, color: colour(sort) });
                        }
                    }
                }
            },
        );
    frame.render_widget(canvas, area);
}

/// A letter for what there is little of; the rest are points.
fn mark(sort: Sort) -> Option<&'static str> {
    match sort {
        Sort::Player => Some("P"),
        Sort::Relic => Some("R"),
        Sort::Ball => Some("o"),
        Sort::Crate | Sort::Drone | Sort::Unit => None,
    }
}

fn colour(sort: Sort) -> Color {
    match sort {
        Sort::Crate => Color::Gray,
        Sort::Drone => Color::Cyan,
        Sort::Unit => Color::Green,
        Sort::Ball => Color::Yellow,
        Sort::Player => Color::LightRed,
        Sort::Relic => Color::LightMagenta,
    }
}

/// A line of figures for each guest, and curves of the last minute where there is room. Who is skipped on the maps is skipped here, as
/// far as there is not room for all.
fn draw_links(frame: &mut Frame<'_>, area: Rect, lines: &[Line], skipped: usize) {
    let block = Block::bordered().title(" links: a second's mean ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let curves = usize::from(inner.width).saturating_sub(FIGURES);
    let mut head = format!(
        "{:<8}{:>7}{:>7}{:>7}{:>8}{:>7}{:>7}{:>7}{:>6}{:>8}",
        "guest", "rtt ms", "jit ms", "loss %", "down kb", "up kb", "buf ms", "old ms", "fix/s", "again/s"
    );
    head += &match curves {
        0..8 => String::new(),
        8..40 => " rtt".into(),
        _ => format!(" {:<1$} traffic down", "rtt of this last minute", curves / 2 - 1),
    };
    let mut text = vec![Text::styled(head, Style::new().add_modifier(Modifier::DIM))];
    let room = usize::from(inner.height).saturating_sub(1);
    let fits = if lines.len() > room { room.saturating_sub(1) } else { room };
    let first = skipped.min(lines.len().saturating_sub(fits));
    text.extend(lines.iter().skip(first).take(fits).map(|line| figures(line, curves)));
    if lines.len() > room {
        text.push(Text::from(format!("and {} more", lines.len() - fits)));
    }
    frame.render_widget(Paragraph::new(text), inner);
}

fn figures(line: &Line, curves: usize) -> Text<'static> {
    let name: String = line.name.chars().take(7).collect();
    let part = |text: String, bad: bool| Span::styled(text, if bad { Style::new().fg(Color::LightRed) } else { Style::new() });
    let mut spans = vec![
        part(format!("{name:<8}{:>7.0}{:>7.1}", line.rtt_ms, line.jitter_ms), false),
        part(format!("{:>7.1}", line.loss_pct), line.loss_pct >= 10.0),
        part(format!("{:>8.0}{:>7.0}{:>7.0}", line.down_kbps, line.up_kbps, line.buffer_ms), false),
        part(format!("{:>7.0}", line.oldest_ms), line.oldest_ms > line.buffer_ms),
        part(format!("{:>6.1}{:>8.0}", line.corrections, line.reruns), false),
    ];
    let blue = Style::new().fg(Color::LightBlue);
    match curves {
        0..8 => {}
        8..40 => spans.push(Span::styled(format!(" {}", curve(&line.trips, curves - 1)), blue)),
        _ => {
            let width = curves / 2 - 1;
            spans.push(Span::styled(format!(" {:<width$} ", curve(&line.trips, width)), blue));
            spans.push(Span::styled(curve(&line.downs, width), Style::new().fg(Color::LightGreen)));
        }
    }
    Text::from(spans)
}

/// The newest values that fit, from zero to their largest.
fn curve(values: &[f64], width: usize) -> String {
    let newest = &values[values.len().saturating_sub(width)..];
    let most = newest.iter().copied().fold(0.0, f64::max);
    let level = |value: f64| if most > 0.0 { (value / most * 7.0).round() as usize } else { 0 };
    newest.iter().map(|value| CURVE[level(*value).min(7)]).collect()
}

fn draw_traffic(frame: &mut Frame<'_>, area: Rect, traffic: &[(String, f64)]) {
    let sum: f64 = traffic.iter().map(|(_, rate)| rate).sum();
    let block = Block::bordered().title(format!(" to all guests: {sum:.0} kbit/s "));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let most = traffic.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let room = usize::from(inner.width).saturating_sub(22);
    let line = |(name, rate): &(String, f64)| {
        let length = if most > 0.0 { (rate / most * room as f64).round() as usize } else { 0 };
        let bar = Span::styled("█".repeat(length), Style::new().fg(Color::Blue));
        Text::from(vec![Span::raw(format!("{name:<14.14}{rate:>6.0} ")), bar])
    };
    let lines: Vec<Text<'_>> = traffic.iter().take(inner.height.into()).map(line).collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_remarks(frame: &mut Frame<'_>, area: Rect, remarks: &[String]) {
    let block = Block::bordered().title(" news ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let newest = &remarks[remarks.len().saturating_sub(inner.height.into())..];
    let lines: Vec<Text<'_>> = newest.iter().map(|remark| Text::from(remark.as_str())).collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

fn key_line(width: u16) -> Text<'static> {
    let text = match width {
        0..40 => " ? help  q end",
        40..130 => " l/L latency  j/J jitter  p/P loss  g/G guests  ←→ worlds  ? help  q end",
        _ => {
            " l/L more/less latency   j/J jitter   p/P loss   g/G more/fewer guests   ←→ other worlds   ? help   q end, compare the worlds"
        }
    };
    Text::styled(text, Style::new().add_modifier(Modifier::DIM))
}

const HELP: &[&str] = &[
    "Each map is the world of one peer, as it draws it:",
    "  points  crates (host's), drones (guests'), the crowd",
    "  P       players: steered by a guest, decided by the host",
    "  R       the relic: who carries it moves it",
    "  o       ball and paddles: rollback",
    "",
    "rtt, jit  round trip and how much it varies",
    "loss      packets that QUIC lost, both ways",
    "buf       how far in the past others are drawn",
    "old       age of the oldest news; red: beyond the buffer",
    "fix/s     predictions and own writes that were corrected",
    "again/s   ticks that were run again",
    "rest      inputs, sealed frames, headers, QUIC",
    "",
    "l/L j/J p/P g/G   latency, jitter, loss, guests",
    "q                 end, compare the worlds; twice: leave",
];

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let width = HELP.iter().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4;
    let height = HELP.len() as u16 + 2;
    let [_, row, _] = Layout::vertical([Constraint::Fill(1), Constraint::Max(height), Constraint::Fill(1)]).areas(area);
    let [_, spot, _] = Layout::horizontal([Constraint::Fill(1), Constraint::Max(width), Constraint::Fill(1)]).areas(row);
    let lines: Vec<Text<'_>> = HELP.iter().map(|line| Text::from(format!(" {line}"))).collect();
    frame.render_widget(Clear, spot);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" help: ? or q closes it ")), spot);
}
