//! `--workload=kv`: objects and requests of a model's KV cache, and what is said of the loads.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::args::{ALIGN, BenchArgs, OBJECT};
use crate::failure::Failure;
use crate::kv::{self, Attention, Layout, Model};
use crate::units::{self, count, human, nanos};

/// What objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    Kv,
}

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "KV cache of a model")]
pub struct KvArgs {
    /// kv: objects are chunks of a model's KV cache, a request is what one rank loads for a sequence
    #[arg(long, value_enum, hide_possible_values = true, value_name = "HOW")]
    pub workload: Option<Workload>,
    /// A common model, as llama-3.1-8b
    #[arg(long, value_name = "NAME", requires = "workload")]
    pub model: Option<String>,
    /// Ranks of tensor parallelism
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, requires = "workload")]
    pub tp: u64,
    /// Tokens of a sequence
    #[arg(long, value_name = "N", default_value = "32k", hide_default_value = true, requires = "workload", value_parser = units::size)]
    pub tokens: u64,
    /// Tokens of a chunk
    #[arg(long = "chunk_tokens", alias = "chunk-tokens", value_name = "N", default_value = "256",
          hide_default_value = true, requires = "workload", value_parser = units::size)]
    pub chunk_tokens: u64,
    /// Layers of another model
    #[arg(long, value_name = "N", requires = "workload")]
    pub layers: Option<u64>,
    /// Its KV heads
    #[arg(long = "kv_heads", alias = "kv-heads", value_name = "N", requires = "workload")]
    pub kv_heads: Option<u64>,
    /// Elements of a head
    #[arg(long = "head_size", alias = "head-size", value_name = "N", requires = "workload")]
    pub head_size: Option<u64>,
    /// Elements of its latent vector (multi-head latent attention)
    #[arg(long, value_name = "N", requires = "workload", conflicts_with_all = ["kv_heads", "head_size"])]
    pub latent: Option<u64>,
    /// bf16, fp16, fp8, int8 or fp32
    #[arg(
        long = "kv_dtype",
        alias = "kv-dtype",
        value_name = "TYPE",
        default_value = "bf16",
        hide_default_value = true,
        requires = "workload"
    )]
    pub kv_dtype: String,
    /// Seconds in which the tokens would be computed again
    #[arg(long = "recompute_s", alias = "recompute-s", value_name = "S", requires = "workload")]
    pub recompute_s: Option<f64>,
}

/// The cache that is loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct KvPlan {
    /// In words.
    pub model: String,
    pub tp: u64,
    pub tokens: u64,
    pub chunk_tokens: u64,
    pub layout: Layout,
    pub recompute: Option<f64>,
}

impl BenchArgs {
    /// Makes objects and requests of the model's geometry, where that was asked for.
    pub fn lay_out_kv(&mut self) -> Result<Option<KvPlan>, Failure> {
        let kv = &self.kv;
        if kv.workload.is_none() {
            return Ok(None);
        }
        if self.bs != OBJECT || self.more.request_size.is_some() {
            return refuse(
                "--workload=kv makes objects and requests by the model: leave out --bs and --request_size",
            );
        }
        let model = match (&kv.model, kv.layers) {
            (Some(_), Some(_)) => return refuse("--model names a model and --layers another: leave one out"),
            (Some(name), None) => {
                Model::named(name).map_err(|why| Failure::Setup(format!("--model: {why}")))?
            }
            (None, Some(layers)) => Model { name: "by numbers", layers, attention: attention(kv)? },
            (None, None) => {
                return refuse(
                    "--workload=kv needs a model: add --model=llama-3.1-8b, or --layers and its heads",
                );
            }
        };
        let element =
            kv::element(&kv.kv_dtype).map_err(|why| Failure::Setup(format!("--kv_dtype: {why}")))?;
        let layout = model.layout(kv.tp, kv.tokens, kv.chunk_tokens, element).map_err(Failure::Setup)?;
        whole_blocks(layout.object, kv.chunk_tokens)?;
        if let Some(size) = self.size.filter(|size| *size < layout.object) {
            let (size, chunk) = (units::short(size), units::short(layout.object));
            return refuse(&format!(
                "--size={size} does not hold one chunk of {chunk}: raise it or lower --chunk_tokens"
            ));
        }
        if kv.recompute_s.is_some_and(|seconds| !seconds.is_finite() || seconds <= 0.0) {
            return refuse("--recompute_s is a time in seconds: give one like 1.8");
        }
        let model = format!("{}, {}", model.name, kv.kv_dtype);
        let (tp, tokens, chunk_tokens, recompute) = (kv.tp, kv.tokens, kv.chunk_tokens, kv.recompute_s);
        self.bs = layout.object;
        self.more.request_size = Some(layout.of_rank());
        Ok(Some(KvPlan { model, tp, tokens, chunk_tokens, layout, recompute }))
    }
}

/// Objects lie at multiples of 4 KiB, which a chunk of few tokens may not fill.
fn whole_blocks(object: u64, chunk_tokens: u64) -> Result<(), Failure> {
    let a_token = object / chunk_tokens;
    let whole = 1 << ALIGN.trailing_zeros().saturating_sub(a_token.trailing_zeros());
    if object.is_multiple_of(ALIGN) {
        return Ok(());
    }
    refuse(&format!(
        "--chunk_tokens={chunk_tokens} makes objects of {object} bytes, which are no whole 4 KiB: give --chunk_tokens={}",
        chunk_tokens.next_multiple_of(whole)
    ))
}

fn attention(kv: &KvArgs) -> Result<Attention, Failure> {
    match (kv.latent, kv.kv_heads, kv.head_size) {
        (Some(elements), ..) => Ok(Attention::Latent { elements }),
        (None, Some(kv_heads), Some(head_size)) => Ok(Attention::Grouped { kv_heads, head_size }),
        _ => refuse("--layers needs the heads of the model: add --kv_heads and --head_size, or --latent"),
    }
}

/// A load: when it was submitted, its time, and the GPU that it went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub begun: Duration,
    pub took: Duration,
    pub gpu: Option<u32>,
}

/// Median, 99th percentile and most of some times.
fn times(mut loads: Vec<Duration>) -> Option<[Duration; 3]> {
    loads.sort_unstable();
    let at = |part: f64| loads.get(((loads.len() as f64 * part).ceil() as usize).saturating_sub(1)).copied();
    Some([at(0.5)?, at(0.99)?, *loads.last()?])
}

/// The first loads, all submitted at once, and the rest.
fn parts(loads: &[Load], inflight: usize) -> [Vec<Load>; 2] {
    let mut loads = loads.to_vec();
    loads.sort_unstable_by_key(|load| load.begun);
    let rest = loads.split_off(inflight.min(loads.len()));
    [loads, rest]
}

fn took(loads: &[Load]) -> Option<[Duration; 3]> {
    times(loads.iter().map(|load| load.took).collect())
}

fn gpus(loads: &[Load]) -> Vec<u32> {
    let mut gpus: Vec<u32> = loads.iter().filter_map(|load| load.gpu).collect();
    gpus.sort_unstable();
    gpus.dedup();
    gpus
}

fn of_gpu(loads: &[Load], gpu: u32) -> Vec<Load> {
    loads.iter().copied().filter(|load| load.gpu == Some(gpu)).collect()
}

impl KvPlan {
    /// What is loaded, a line for people.
    pub fn head(&self) -> String {
        let layout = &self.layout;
        format!(
            "kv: {}: {} tokens in chunks of {} are {} of {} a rank at TP{}; a request is one rank's {} (all ranks {})",
            self.model,
            self.tokens,
            self.chunk_tokens,
            count(layout.objects, "object"),
            human(layout.object),
            self.tp,
            human(layout.of_rank()),
            human(layout.of_all())
        )
    }

    /// How many times faster loading is than computing.
    fn ratio(&self, loads: &[Load]) -> Option<f64> {
        let [median, ..] = took(loads)?;
        Some(self.recompute? / median.as_secs_f64().max(1e-9))
    }

    /// What people read of the loads.
    pub fn lines(&self, loads: &[Load], inflight: usize) -> Vec<String> {
        let [first, rest] = parts(loads, inflight);
        let ns = |time: Duration| nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let line = |name: String, loads: &[Load]| {
            took(loads).map(|[p50, p99, max]| {
                format!(
                    "  {name}: {}: p50 {} p99 {} max {}",
                    count(loads.len() as u64, "load"),
                    ns(p50),
                    ns(p99),
                    ns(max)
                )
            })
        };
        let mut lines = vec![line("first in flight".into(), &first), line("the rest".into(), &rest)];
        for gpu in gpus(loads) {
            lines.push(line(format!("gpu:{gpu}, first in flight"), &of_gpu(&first, gpu)));
            lines.push(line(format!("gpu:{gpu}, the rest"), &of_gpu(&rest, gpu)));
        }
        lines.push(self.ratio(loads).zip(self.recompute).map(|(ratio, seconds)| {
            format!("  loading is {ratio:.1} times as fast as computing the tokens again in {seconds} s")
        }));
        lines.into_iter().flatten().collect()
    }

    pub fn json(&self, loads: &[Load], inflight: usize) -> Value {
        let [first, rest] = parts(loads, inflight);
        let times = |loads: &[Load]| {
            took(loads).map(|times| {
                let [p50, p99, max] = times.map(|time| time.as_secs_f64());
                json!({ "loads": loads.len(), "p50_s": p50, "p99_s": p99, "max_s": max })
            })
        };
        let gpu = |gpu: u32| {
            let [first, rest, all] = [&first, &rest, loads].map(|loads| times(&of_gpu(loads, gpu)));
            json!({ "gpu": gpu, "load": all, "first": first, "rest": rest })
        };
        json!({
            "model": self.model,
            "tp": self.tp,
            "tokens": self.tokens,
            "chunk_tokens": self.chunk_tokens,
            "object_bytes": self.layout.object,
            "objects": self.layout.objects,
            "bytes_of_all_ranks": self.layout.of_all(),
            "first": times(&first),
            "rest": times(&rest),
            "gpus": gpus(loads).into_iter().map(gpu).collect::<Vec<_>>(),
            "recompute_s": self.recompute,
            "recompute_over_load": self.ratio(loads),
        })
    }
}

fn refuse<T>(text: &str) -> Result<T, Failure> {
    Err(Failure::Setup(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> KvPlan {
        let layout = Model::named("llama-3.1-8b").unwrap().layout(4, 32 << 10, 256, 2).unwrap();
        let model = "llama-3.1-8b, bf16".into();
        KvPlan { model, tp: 4, tokens: 32 << 10, chunk_tokens: 256, layout, recompute: Some(2.0) }
    }

    fn loads() -> Vec<Load> {
        let load = |n: u64, ms| Load {
            begun: Duration::from_micros(n),
            took: Duration::from_millis(ms),
            gpu: Some(n as u32 % 2),
        };
        // In no order, as threads hand them in.
        vec![load(3, 100), load(0, 400), load(2, 100), load(1, 200)]
    }

    #[test]
    fn first_loads_and_the_rest_are_told_apart() {
        let text = plan().lines(&loads(), 2).join("\n");
        assert!(text.contains("first in flight: 2 loads: p50 200 ms p99 400 ms max 400 ms"), "{text}");
        assert!(text.contains("the rest: 2 loads: p50 100 ms"), "{text}");
        assert!(text.contains("gpu:0, first in flight: 1 load: p50 400 ms"), "{text}");
        assert!(text.contains("gpu:0, the rest: 1 load: p50 100 ms"), "{text}");
        assert!(text.contains("20.0 times as fast"), "{text}");
        let json = plan().json(&loads(), 2);
        assert_eq!((json["first"]["max_s"].as_f64(), json["rest"]["loads"].as_u64()), (Some(0.4), Some(2)));
        let gpu = &json["gpus"][1];
        assert_eq!((gpu["first"]["max_s"].as_f64(), gpu["rest"]["max_s"].as_f64()), (Some(0.2), Some(0.1)));
        assert_eq!(gpu["load"]["loads"].as_u64(), Some(2));
        assert_eq!(
            (json["object_bytes"].as_u64(), json["recompute_over_load"].as_f64()),
            (Some(8 << 20), Some(20.0))
        );
        assert!(plan().lines(&[], 2).is_empty() && plan().json(&[], 2)["first"].is_null());
    }

    #[test]
    fn chunks_that_fill_no_blocks_are_refused_with_the_next_that_do() {
        // A token of DeepSeek-V3 on a rank: 61 layers, 576 elements of 2 bytes.
        let token = 61 * 576 * 2;
        let why = whole_blocks(16 * token, 16).unwrap_err().to_string();
        assert!(why.ends_with("give --chunk_tokens=32"), "{why}");
        assert!(whole_blocks(32 * token, 32).is_ok() && whole_blocks(8 << 20, 256).is_ok());
    }

    #[test]
    fn the_head_has_the_geometry() {
        let head = plan().head();
        assert!(
            head.contains("128 objects of 8 MiB a rank at TP4") && head.contains("(all ranks 4 GiB)"),
            "{head}"
        );
    }
}
