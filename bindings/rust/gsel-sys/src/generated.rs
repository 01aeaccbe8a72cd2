// Made by generate.sh from include/gsel; not edited by hand. The headers document these names.
use std::os::raw::{c_char, c_void};
pub type gsel_status = i32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_str {
    pub data: *const c_char,
    pub len: usize,
}
pub type gsel_free_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
pub type gsel_dtype = i32;
pub type gsel_op = i32;
pub type gsel_axis = i32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_tensor {
    pub data: *mut c_void,
    pub n_elems: i64,
    pub dims: [i64; 6],
    pub n_dims: i32,
    pub dtype: gsel_dtype,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_range {
    pub begin: i64,
    pub end: i64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_shard {
    pub dim: i32,
    pub blocks: i32,
    pub begin: i64,
    pub end: i64,
    pub whole: i64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_comm_count {
    pub struct_size: u32,
    pub reserved: u32,
    pub calls: u64,
    pub bytes_sent: u64,
}
unsafe impl crate::Sized32 for gsel_comm_count {}
#[repr(C)]
pub struct gsel_error {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_model {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_call {
    pub struct_size: u32,
    pub reserved: u32,
    pub layer: i32,
    pub microbatch: i32,
    pub n_samples: i64,
    pub sample_ids: *const i64,
    pub params: *const gsel_tensor,
    pub inputs: *const gsel_tensor,
    pub outputs: *const gsel_tensor,
    pub d_outputs: *const gsel_tensor,
    pub d_inputs: *const gsel_tensor,
    pub d_params: *const gsel_tensor,
    pub n_params: i32,
    pub n_inputs: i32,
    pub n_outputs: i32,
    pub accumulate: i32,
    pub saved: *mut c_void,
    pub saved_bytes: u64,
    pub rng_key: u64,
    pub stream: *mut c_void,
    pub message: *mut c_char,
    pub message_capacity: usize,
    pub user_data: *mut c_void,
    pub step: i64,
    pub evaluating: i32,
    pub phase: i32,
    pub reductions: *const gsel_tensor,
    pub n_reductions: i32,
    pub reserved2: i32,
    pub produced: *mut u8,
    pub param_shards: *const gsel_shard,
    pub input_shards: *const gsel_shard,
    pub output_shards: *const gsel_shard,
    pub shard_index: i32,
    pub shard_count: i32,
    pub device_rng_key: *const u64,
}
unsafe impl crate::Sized32 for gsel_call {}
pub type gsel_layer_fn = Option<unsafe extern "C" fn(call: *const gsel_call, user_data: *mut c_void) -> gsel_status>;
pub type gsel_init_fn = Option<unsafe extern "C" fn(dst: *mut f32, first: i64, count: i64, seed: u64, user_data: *mut c_void) -> gsel_status>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_param_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: gsel_str,
    pub dims: *const i64,
    pub n_dims: i32,
    pub dtype: gsel_dtype,
    pub flags: u32,
    pub init: i32,
    pub init_scale: f64,
    pub init_fn: gsel_init_fn,
    pub init_user_data: *mut c_void,
    pub shard: i32,
    pub shard_dim: i32,
    pub shard_blocks: i32,
    pub shard_granularity: i32,
    pub lr_factor: f64,
    pub init_free_user_data: gsel_free_fn,
}
unsafe impl crate::Sized32 for gsel_param_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_value_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: gsel_str,
    pub dims: *const i64,
    pub n_dims: i32,
    pub dtype: gsel_dtype,
    pub flags: u32,
    pub placement: i32,
    pub shard_dim: i32,
    pub shard_granularity: i32,
    pub shard_blocks: i32,
    pub sequence_dim: i32,
}
unsafe impl crate::Sized32 for gsel_value_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_phase {
    pub struct_size: u32,
    pub reserved: u32,
    pub axis: gsel_axis,
    pub op: gsel_op,
    pub dtype: gsel_dtype,
    pub flags: u32,
    pub elems: i64,
    pub elems_per_sample: i64,
}
unsafe impl crate::Sized32 for gsel_phase {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_layer_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: gsel_str,
    pub inputs: *const i32,
    pub outputs: *const i32,
    pub params: *const i32,
    pub n_inputs: i32,
    pub n_outputs: i32,
    pub n_params: i32,
    pub flags: u32,
    pub saved_bytes_per_sample: u64,
    pub flop_per_sample: f64,
    pub forward: gsel_layer_fn,
    pub backward_input: gsel_layer_fn,
    pub backward_weight: gsel_layer_fn,
    pub backward: gsel_layer_fn,
    pub user_data: *mut c_void,
    pub backward_input_unread: u64,
    pub backward_weight_unread: u64,
    pub backward_unread_params: u64,
    pub forward_phases: *const gsel_phase,
    pub backward_phases: *const gsel_phase,
    pub n_forward_phases: i32,
    pub n_backward_phases: i32,
    pub free_user_data: gsel_free_fn,
}
unsafe impl crate::Sized32 for gsel_layer_options {}
#[repr(C)]
pub struct gsel_config {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_comm {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_unique_id {
    pub bytes: [u8; 128],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_comm_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub rank: i32,
    pub world_size: i32,
    pub id: *const gsel_unique_id,
    pub timeout_s: f64,
    pub join_timeout_s: f64,
    pub config: *const gsel_config,
    pub device: gsel_str,
    pub order: i32,
    pub flags: u32,
    pub name: gsel_str,
    pub accelerator: gsel_str,
    pub transport: gsel_str,
    pub rendezvous: gsel_str,
}
unsafe impl crate::Sized32 for gsel_comm_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_message {
    pub struct_size: u32,
    pub source: i32,
    pub tag: i32,
    pub dtype: gsel_dtype,
    pub count: u64,
}
unsafe impl crate::Sized32 for gsel_message {}
pub type gsel_collective_kind = i32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_collective {
    pub struct_size: u32,
    pub kind: gsel_collective_kind,
    pub dtype: gsel_dtype,
    pub op: gsel_op,
    pub root: i32,
    pub source: i32,
    pub send: *const c_void,
    pub recv: *mut c_void,
    pub count: u64,
    pub recv_count: u64,
    pub send_counts: *const u64,
    pub send_offsets: *const u64,
    pub recv_counts: *const u64,
    pub recv_offsets: *const u64,
    pub factor: f64,
    pub timeout_s: f64,
    pub label: gsel_str,
    pub tag: i32,
    pub recv_tag: i32,
    pub received: *mut gsel_message,
    pub stream: *mut c_void,
    pub send_parts: *const *const c_void,
    pub recv_parts: *const *mut c_void,
}
unsafe impl crate::Sized32 for gsel_collective {}
#[repr(C)]
pub struct gsel_request {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_queue {
    _private: [u8; 0],
}
pub type gsel_op_fn = Option<unsafe extern "C" fn(accumulated: *mut c_void, next: *const c_void, count: usize, dtype: gsel_dtype, user_data: *mut c_void) -> i32>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_comm_explanation {
    pub struct_size: u32,
    pub reserved: u32,
    pub protocol: *const c_char,
    pub reason: *const c_char,
    pub chunk_bytes: u64,
    pub seconds: f64,
    pub sent_bytes: u64,
    pub transport: *const c_char,
    pub transport_reason: *const c_char,
}
unsafe impl crate::Sized32 for gsel_comm_explanation {}
#[repr(C)]
pub struct gsel_trace {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_program {
    _private: [u8; 0],
}
pub type gsel_instr_kind = i32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_instr {
    pub kind: gsel_instr_kind,
    pub layer: i32,
    pub value: i32,
    pub microbatch: i32,
    pub bucket: i32,
    pub axis: i32,
    pub peer: i32,
    pub flags: u32,
}
#[repr(C)]
pub struct gsel_trainer {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_data_request {
    pub struct_size: u32,
    pub reserved: u32,
    pub value: i32,
    pub microbatch: i32,
    pub n_samples: i64,
    pub sample_ids: *const i64,
    pub dst: gsel_tensor,
    pub message: *mut c_char,
    pub message_capacity: usize,
    pub stream: *mut c_void,
}
unsafe impl crate::Sized32 for gsel_data_request {}
pub type gsel_data_fn = Option<unsafe extern "C" fn(request: *const gsel_data_request, user_data: *mut c_void) -> gsel_status>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_optimizer_call {
    pub struct_size: u32,
    pub phase: i32,
    pub param: i32,
    pub flags: u32,
    pub dims: *const i64,
    pub n_dims: i32,
    pub n_states: i32,
    pub first: i64,
    pub count: i64,
    pub values: *mut f32,
    pub gradient: *mut f32,
    pub states: *const *mut f32,
    pub t: i64,
    pub learning_rate: f64,
    pub weight_decay: f64,
    pub param_norm: f64,
    pub update_norm: f64,
    pub message: *mut c_char,
    pub message_capacity: usize,
    pub stream: *mut c_void,
}
unsafe impl crate::Sized32 for gsel_optimizer_call {}
pub type gsel_optimizer_fn = Option<unsafe extern "C" fn(call: *const gsel_optimizer_call, user_data: *mut c_void) -> gsel_status>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_optimizer_options {
    pub struct_size: u32,
    pub needs: i32,
    pub n_states: i32,
    pub reserved: i32,
    pub step: gsel_optimizer_fn,
    pub user_data: *mut c_void,
    pub free_user_data: gsel_free_fn,
}
unsafe impl crate::Sized32 for gsel_optimizer_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_trainer_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub config: *const gsel_config,
    pub data: gsel_data_fn,
    pub data_user_data: *mut c_void,
    pub optimizer: *const gsel_optimizer_options,
    pub data_free_user_data: gsel_free_fn,
}
unsafe impl crate::Sized32 for gsel_trainer_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_step_report {
    pub struct_size: u32,
    pub reserved: u32,
    pub step: i64,
    pub loss: f64,
    pub loss_sum: f64,
    pub weight: f64,
    pub gradient_norm: f64,
    pub seconds: f64,
    pub compute_s: f64,
    pub exposed_comm_s: f64,
    pub optimizer_s: f64,
    pub bytes_sent: u64,
    pub n_reduces: i32,
    pub n_overlapped: i32,
    pub n_allgathers: i32,
    pub skipped: i32,
    pub allgather_s: f64,
    pub exposed_allgather_s: f64,
    pub learning_rate: f64,
    pub loss_scale: f64,
    pub peak_bytes: u64,
    pub offload_bytes_in: u64,
    pub offload_bytes_out: u64,
    pub validated_step: i64,
    pub restarts: i32,
    pub non_finite_rank: i32,
    pub non_finite_layer: i32,
    pub non_finite_param: i32,
    pub non_finite_microbatch: i32,
    pub non_finite_value: i32,
    pub save: i32,
    pub reserved2: u32,
}
unsafe impl crate::Sized32 for gsel_step_report {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_work {
    pub struct_size: u32,
    pub reserved: u32,
    pub kind: i32,
    pub reserved2: i32,
    pub ticket: u64,
    pub call: *const gsel_call,
    pub input: *const gsel_data_request,
}
unsafe impl crate::Sized32 for gsel_work {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_memory_part {
    pub struct_size: u32,
    pub offloaded: i32,
    pub name: *const c_char,
    pub forecast_bytes: u64,
    pub peak_bytes: u64,
}
unsafe impl crate::Sized32 for gsel_memory_part {}
pub type gsel_breach_kind = i32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_breach {
    pub struct_size: u32,
    pub reserved: u32,
    pub kind: gsel_breach_kind,
    pub layer: i32,
    pub callback: i32,
    pub buffer: i32,
    pub index: i32,
    pub n_dims: i32,
    pub element: i64,
    pub coordinates: [i64; 6],
    pub found: f64,
    pub expected: f64,
    pub text: gsel_str,
}
unsafe impl crate::Sized32 for gsel_breach {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_model_check_options {
    pub struct_size: u32,
    pub skip: u32,
    pub data: gsel_data_fn,
    pub data_user_data: *mut c_void,
    pub n_samples: i64,
    pub first_sample: i64,
    pub index_limit: i64,
    pub seed: u64,
    pub tensor_ranks: i32,
    pub differences: i32,
    pub optimizer: *const gsel_optimizer_options,
}
unsafe impl crate::Sized32 for gsel_model_check_options {}
#[repr(C)]
pub struct gsel_model_check_report {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_report {
    pub struct_size: u32,
    pub reserved: u32,
    pub step: i64,
    pub bytes: u64,
    pub needed_bytes: u64,
    pub seconds: f64,
    pub blocked_seconds: f64,
    pub copy_seconds: f64,
    pub compared_bytes: u64,
}
unsafe impl crate::Sized32 for gsel_checkpoint_report {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub keep: i32,
    pub reserved2: u32,
}
unsafe impl crate::Sized32 for gsel_checkpoint_options {}
#[repr(C)]
pub struct gsel_checkpoint {
    _private: [u8; 0],
}
pub type gsel_checkpoint_progress_fn = Option<unsafe extern "C" fn(done_bytes: u64, total_bytes: u64, user_data: *mut c_void) -> i32>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_tool_options {
    pub struct_size: u32,
    pub flags: u32,
    pub progress: gsel_checkpoint_progress_fn,
    pub user_data: *mut c_void,
}
unsafe impl crate::Sized32 for gsel_checkpoint_tool_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_info {
    pub struct_size: u32,
    pub reserved: u32,
    pub path: gsel_str,
    pub optimizer: gsel_str,
    pub step: i64,
    pub updates: i64,
    pub learning_rate: f64,
    pub loss_scale: f64,
    pub n_entries: i32,
    pub n_files: i32,
    pub entry_bytes: u64,
    pub file_bytes: u64,
    pub n_own: i32,
    pub n_ranks: i32,
}
unsafe impl crate::Sized32 for gsel_checkpoint_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_entry {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: gsel_str,
    pub role: gsel_str,
    pub shape: *const i64,
    pub n_dims: i32,
    pub dtype: gsel_dtype,
    pub bytes: u64,
    pub n_pieces: i32,
    pub reserved2: u32,
}
unsafe impl crate::Sized32 for gsel_checkpoint_entry {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_piece {
    pub struct_size: u32,
    pub reserved: u32,
    pub file: gsel_str,
    pub key: gsel_str,
    pub first: i64,
    pub count: i64,
}
unsafe impl crate::Sized32 for gsel_checkpoint_piece {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_own {
    pub struct_size: u32,
    pub scope: i32,
    pub name: gsel_str,
    pub file: gsel_str,
    pub key: gsel_str,
    pub bytes: u64,
}
unsafe impl crate::Sized32 for gsel_checkpoint_own {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_file {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: gsel_str,
    pub sum: gsel_str,
    pub bytes: u64,
}
unsafe impl crate::Sized32 for gsel_checkpoint_file {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_checkpoint_difference {
    pub struct_size: u32,
    pub kind: i32,
    pub name: gsel_str,
    pub first: gsel_str,
    pub second: gsel_str,
    pub element: i64,
    pub count: i64,
    pub largest: f64,
}
unsafe impl crate::Sized32 for gsel_checkpoint_difference {}
#[repr(C)]
pub struct gsel_checkpoint_differences {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_dlpack_tensor {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_dlpack_versioned {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_dlpack_device {
    pub r#type: i32,
    pub id: i32,
}
pub type gsel_log_level = i32;
pub type gsel_log_fn = Option<unsafe extern "C" fn(level: gsel_log_level, component: gsel_str, line: gsel_str, user_data: *mut c_void)>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_mesh {
    pub struct_size: u32,
    pub reserved: u32,
    pub world_size: i32,
    pub n_axes: i32,
    pub size: [i32; 8],
}
unsafe impl crate::Sized32 for gsel_mesh {}
#[repr(C)]
pub struct gsel_pipeline {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_pipeline_options {
    pub struct_size: u32,
    pub chunks: i32,
    pub schedule: gsel_str,
    pub microbatches: i32,
    pub n_first_layers: i32,
    pub microbatch_samples: i64,
    pub first_layers: *const i32,
    pub data: gsel_data_fn,
    pub data_user_data: *mut c_void,
    pub timeline: gsel_str,
    pub tensor_ranks: i32,
    pub reserved: i32,
    pub data_free_user_data: gsel_free_fn,
}
unsafe impl crate::Sized32 for gsel_pipeline_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_pipeline_report {
    pub struct_size: u32,
    pub rank: i32,
    pub elapsed_s: f64,
    pub busy_s: f64,
    pub idle_s: f64,
    pub comm_s: f64,
    pub overhead_s: f64,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub peak_bytes: u64,
    pub loss_sum: f64,
    pub loss_weight: f64,
}
unsafe impl crate::Sized32 for gsel_pipeline_report {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_pipeline_stage {
    pub struct_size: u32,
    pub stage: i32,
    pub first_layer: i32,
    pub n_layers: i32,
    pub forward_s: f64,
    pub backward_input_s: f64,
    pub backward_weight_s: f64,
}
unsafe impl crate::Sized32 for gsel_pipeline_stage {}
#[repr(C)]
pub struct gsel_inventory {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_device_info {
    pub struct_size: u32,
    pub reserved: u32,
    pub index: i32,
    pub numa: i32,
    pub vendor: gsel_str,
    pub name: gsel_str,
    pub uuid: gsel_str,
    pub pci: gsel_str,
    pub memory_bytes: u64,
    pub free_bytes: u64,
    pub capability_major: i32,
    pub capability_minor: i32,
    pub compute_units: i32,
    pub process_count: i32,
    pub host: gsel_str,
    pub architecture: gsel_str,
    pub partition_uuid: gsel_str,
    pub clock_khz: i64,
    pub partition: i32,
    pub tile: i32,
    pub partition_count: i32,
    pub tiles: i32,
    pub compute_mode: i32,
    pub integrated: i32,
    pub accessible: i32,
    pub reserved_by: i32,
}
unsafe impl crate::Sized32 for gsel_device_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_partition_info {
    pub struct_size: u32,
    pub reserved: u32,
    pub uuid: gsel_str,
    pub memory_bytes: u64,
    pub gi: i32,
    pub ci: i32,
}
unsafe impl crate::Sized32 for gsel_partition_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_interconnect_info {
    pub struct_size: u32,
    pub reserved: u32,
    pub a: i32,
    pub b: i32,
    pub kind: gsel_str,
    pub bytes_per_second: f64,
    pub latency_s: f64,
}
unsafe impl crate::Sized32 for gsel_interconnect_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_env_var {
    pub name: gsel_str,
    pub value: gsel_str,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_resolve_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub inventory: *const gsel_inventory,
    pub env: *const gsel_env_var,
    pub n_env: usize,
    pub devices: gsel_str,
    pub accelerator: gsel_str,
    pub flags: u32,
    pub reserved2: u32,
    pub compat: gsel_str,
    pub order: gsel_str,
    pub include: gsel_str,
    pub exclude: gsel_str,
    pub hostfile: gsel_str,
    pub hostfile_text: gsel_str,
}
unsafe impl crate::Sized32 for gsel_resolve_options {}
#[repr(C)]
pub struct gsel_selection {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_candidate {
    pub struct_size: u32,
    pub reserved: u32,
    pub index: i32,
    pub position: i32,
    pub reason: gsel_str,
    pub partition: i32,
    pub reserved2: i32,
}
unsafe impl crate::Sized32 for gsel_candidate {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_decision {
    pub struct_size: u32,
    pub reserved: u32,
    pub layer: gsel_str,
    pub input: gsel_str,
    pub token: gsel_str,
    pub became: gsel_str,
    pub rule: gsel_str,
    pub column: i32,
    pub reserved2: i32,
}
unsafe impl crate::Sized32 for gsel_decision {}
#[repr(C)]
pub struct gsel_plan {
    _private: [u8; 0],
}
pub type gsel_plan_progress_fn = Option<unsafe extern "C" fn(n_tried: i64, user_data: *mut c_void) -> i32>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_plan_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub model: gsel_str,
    pub model_name: gsel_str,
    pub described: *const gsel_model,
    pub cluster: gsel_str,
    pub inventory: *const gsel_inventory,
    pub link: gsel_str,
    pub network: gsel_str,
    pub memory_bytes: f64,
    pub batch: i64,
    pub sequence: i64,
    pub precision: gsel_str,
    pub fixed: gsel_str,
    pub measured: gsel_str,
    pub nodes: i32,
    pub n_shown: i32,
    pub progress: gsel_plan_progress_fn,
    pub user_data: *mut c_void,
}
unsafe impl crate::Sized32 for gsel_plan_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_plan_candidate {
    pub struct_size: u32,
    pub flags: u32,
    pub tensor: i32,
    pub context: i32,
    pub data: i32,
    pub pipeline: i32,
    pub zero_stage: i32,
    pub chunks: i32,
    pub microbatch: i64,
    pub microbatches: i64,
    pub step_s: f64,
    pub samples_per_s: f64,
    pub tokens_per_s: f64,
    pub mfu: f64,
    pub hfu: f64,
    pub bubble: f64,
    pub exposed: f64,
    pub memory_bytes: f64,
    pub host_bytes: f64,
    pub name: gsel_str,
}
unsafe impl crate::Sized32 for gsel_plan_candidate {}
#[repr(C)]
pub struct gsel_plugin_list {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_plugin_info {
    pub struct_size: u32,
    pub reserved: u32,
    pub path: gsel_str,
    pub kind: gsel_str,
    pub name: gsel_str,
    pub version: gsel_str,
    pub refusal: gsel_str,
    pub note: gsel_str,
}
unsafe impl crate::Sized32 for gsel_plugin_info {}
#[repr(C)]
pub struct gsel_reservation {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_reserve_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub folder: gsel_str,
    pub wait_s: f64,
}
unsafe impl crate::Sized32 for gsel_reserve_options {}
#[repr(C)]
pub struct gsel_schedule {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_action {
    pub kind: i32,
    pub stage: i32,
    pub microbatch: i32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_schedule_times {
    pub struct_size: u32,
    pub reserved: u32,
    pub forward: f64,
    pub backward_input: f64,
    pub backward_weight: f64,
    pub hop: f64,
    pub stage_times: *const f64,
}
unsafe impl crate::Sized32 for gsel_schedule_times {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_simulation_report {
    pub struct_size: u32,
    pub reserved: u32,
    pub makespan: f64,
    pub ideal: f64,
    pub bubble_of_makespan: f64,
    pub bubble_of_ideal: f64,
    pub longest_rank_span: f64,
}
unsafe impl crate::Sized32 for gsel_simulation_report {}
#[repr(C)]
pub struct gsel_simulation {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_state {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_state_entry {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: gsel_str,
    pub role: gsel_str,
    pub param: i32,
    pub dtype: gsel_dtype,
    pub n_dims: i32,
    pub n_pieces: i32,
    pub shape: [i64; 6],
}
unsafe impl crate::Sized32 for gsel_state_entry {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_state_run {
    pub whole: i64,
    pub local: i64,
    pub count: i64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_training_numbers {
    pub struct_size: u32,
    pub reserved: u32,
    pub step: i64,
    pub updates: i64,
    pub loss_scale: f64,
    pub good_steps: i64,
    pub overflows_left: i64,
    pub learning_rate: f64,
    pub first_sample: i64,
    pub seed: i64,
}
unsafe impl crate::Sized32 for gsel_training_numbers {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_state_own {
    pub struct_size: u32,
    pub scope: i32,
    pub name: gsel_str,
    pub data: *mut c_void,
    pub bytes: u64,
}
unsafe impl crate::Sized32 for gsel_state_own {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_rebind_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub config: *const gsel_config,
    pub folder: gsel_str,
}
unsafe impl crate::Sized32 for gsel_rebind_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_rebind_report {
    pub struct_size: u32,
    pub source: i32,
    pub step: i64,
    pub lost_steps: i64,
    pub bytes_moved: u64,
    pub seconds: f64,
    pub move_seconds: f64,
}
unsafe impl crate::Sized32 for gsel_rebind_report {}
#[repr(C)]
pub struct gsel_timeline {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_weights_report {
    pub struct_size: u32,
    pub reserved: u32,
    pub n_tensors: i32,
    pub n_kept: i32,
    pub n_ignored: i32,
    pub n_widened: i32,
    pub bytes: u64,
    pub needed_bytes: u64,
    pub compared_bytes: u64,
    pub reads: u64,
    pub seconds: f64,
}
unsafe impl crate::Sized32 for gsel_weights_report {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_host_v1 {
    pub struct_size: u32,
    pub abi_minor: u32,
    pub log: Option<unsafe extern "C" fn(level: i32, component: *const c_char, line: *const c_char)>,
    pub error_new: Option<unsafe extern "C" fn(code: gsel_status, message: *const c_char) -> *mut gsel_error>,
}
unsafe impl crate::Sized32 for gsel_host_v1 {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_plugin_v1 {
    pub struct_size: u32,
    pub reserved: u32,
    pub abi_major: u32,
    pub abi_minor: u32,
    pub kind: i32,
    pub reserved2: i32,
    pub name: *const c_char,
    pub version: *const c_char,
    pub build: *const c_char,
    pub table: *const c_void,
    pub probe: Option<unsafe extern "C" fn(host: *const gsel_host_v1, reason: *mut c_char, capacity: usize) -> i32>,
}
unsafe impl crate::Sized32 for gsel_plugin_v1 {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_option_v1 {
    pub struct_size: u32,
    pub r#type: i32,
    pub name: *const c_char,
    pub help: *const c_char,
    pub minimum: f64,
    pub maximum: f64,
    pub default_text: *const c_char,
}
unsafe impl crate::Sized32 for gsel_option_v1 {}
#[repr(C)]
pub struct gsel_pass {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_bucket_options {
    pub struct_size: u32,
    pub flags: u32,
    pub axis: gsel_axis,
    pub owner: i32,
    pub compression: i32,
    pub compression_rank: i32,
    pub compression_start: i64,
}
unsafe impl crate::Sized32 for gsel_bucket_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_value_info {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub sample_bytes: i64,
    pub producer: i32,
    pub needs_gradient: i32,
    pub placement: i32,
    pub shard_dim: i32,
    pub shard_granularity: i32,
    pub shard_blocks: i32,
    pub sequence_dim: i32,
    pub n_dims: i32,
    pub dims: *const i64,
}
unsafe impl crate::Sized32 for gsel_value_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_microbatch_info {
    pub struct_size: u32,
    pub whole: i32,
    pub first: i64,
    pub count: i64,
}
unsafe impl crate::Sized32 for gsel_microbatch_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_param_info {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub n_elems: i64,
    pub dtype: i32,
    pub absent: i32,
    pub tie: i32,
    pub shard: i32,
    pub shard_dim: i32,
    pub shard_blocks: i32,
    pub shard_granularity: i32,
    pub n_dims: i32,
    pub dims: *const i64,
}
unsafe impl crate::Sized32 for gsel_param_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_layer_info {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub inputs: *const i32,
    pub outputs: *const i32,
    pub params: *const i32,
    pub n_inputs: i32,
    pub n_outputs: i32,
    pub n_params: i32,
    pub redistributes: i32,
    pub backward_unread_params: u64,
    pub backward: u32,
    pub stage: i32,
    pub saved_bytes_per_sample: i64,
    pub flop_per_sample: f64,
    pub n_tensor_phases: i32,
    pub ring_shifts: i32,
}
unsafe impl crate::Sized32 for gsel_layer_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_placement {
    pub kind: i32,
    pub dim: i32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_setting {
    pub key: *const c_char,
    pub value: *const c_char,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_suggestion {
    pub struct_size: u32,
    pub flags: u32,
    pub settings: *const gsel_setting,
    pub n_settings: i32,
    pub reserved: i32,
    pub reason: *const c_char,
}
unsafe impl crate::Sized32 for gsel_suggestion {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_pass_api_v1 {
    pub struct_size: u32,
    pub reserved: u32,
    pub axis_size: Option<unsafe extern "C" fn(pass: *const gsel_pass, axis: gsel_axis) -> i32>,
    pub axis_coordinate: Option<unsafe extern "C" fn(pass: *const gsel_pass, axis: gsel_axis) -> i32>,
    pub param_count: Option<unsafe extern "C" fn(pass: *const gsel_pass) -> i32>,
    pub layer_count: Option<unsafe extern "C" fn(pass: *const gsel_pass) -> i32>,
    pub param: Option<unsafe extern "C" fn(pass: *const gsel_pass, id: i32, out: *mut gsel_param_info) -> gsel_status>,
    pub layer: Option<unsafe extern "C" fn(pass: *const gsel_pass, id: i32, out: *mut gsel_layer_info) -> gsel_status>,
    pub option_integer: Option<unsafe extern "C" fn(pass: *const gsel_pass, name: *const c_char) -> i64>,
    pub option_number: Option<unsafe extern "C" fn(pass: *const gsel_pass, name: *const c_char) -> f64>,
    pub option_text: Option<unsafe extern "C" fn(pass: *const gsel_pass, name: *const c_char) -> *const c_char>,
    pub length: Option<unsafe extern "C" fn(pass: *const gsel_pass) -> i32>,
    pub get: Option<unsafe extern "C" fn(pass: *const gsel_pass, position: i32, out: *mut gsel_instr) -> gsel_status>,
    pub insert: Option<unsafe extern "C" fn(pass: *mut gsel_pass, position: i32, instr: *const gsel_instr) -> gsel_status>,
    pub remove: Option<unsafe extern "C" fn(pass: *mut gsel_pass, position: i32) -> gsel_status>,
    pub setup: Option<unsafe extern "C" fn(pass: *mut gsel_pass, instr: *const gsel_instr) -> gsel_status>,
    pub clear_buckets: Option<unsafe extern "C" fn(pass: *mut gsel_pass)>,
    pub add_bucket: Option<unsafe extern "C" fn(pass: *mut gsel_pass, params: *const i32, n_params: i32) -> i32>,
    pub describe_bucket: Option<unsafe extern "C" fn(pass: *mut gsel_pass, bucket: i32, options: *const gsel_bucket_options) -> gsel_status>,
    pub value_count: Option<unsafe extern "C" fn(pass: *const gsel_pass) -> i32>,
    pub value: Option<unsafe extern "C" fn(pass: *const gsel_pass, id: i32, out: *mut gsel_value_info) -> gsel_status>,
    pub microbatch_count: Option<unsafe extern "C" fn(pass: *const gsel_pass) -> i32>,
    pub microbatch: Option<unsafe extern "C" fn(pass: *const gsel_pass, id: i32, out: *mut gsel_microbatch_info) -> gsel_status>,
    pub set_microbatch: Option<unsafe extern "C" fn(pass: *mut gsel_pass, id: i32, info: *const gsel_microbatch_info) -> gsel_status>,
    pub batch: Option<unsafe extern "C" fn(pass: *const gsel_pass) -> i64>,
    pub set_stages: Option<unsafe extern "C" fn(pass: *mut gsel_pass, stage_of_layer: *const i32, rank_of_stage: *const i32, n_stages: i32) -> gsel_status>,
    pub bucket_count: Option<unsafe extern "C" fn(pass: *const gsel_pass) -> i32>,
    pub schedule: Option<unsafe extern "C" fn(pass: *mut gsel_pass, name: *const c_char, chunks: i32, out: *mut *const gsel_schedule, err: *mut *mut gsel_error) -> gsel_status>,
    pub schedule_file: Option<unsafe extern "C" fn(pass: *mut gsel_pass, path: *const c_char, out: *mut *const gsel_schedule, err: *mut *mut gsel_error) -> gsel_status>,
    pub schedule_stages: Option<unsafe extern "C" fn(schedule: *const gsel_schedule) -> i32>,
    pub schedule_rank_of: Option<unsafe extern "C" fn(schedule: *const gsel_schedule, stage: i32) -> i32>,
    pub schedule_length: Option<unsafe extern "C" fn(schedule: *const gsel_schedule, rank: i32) -> i32>,
    pub schedule_action: Option<unsafe extern "C" fn(schedule: *const gsel_schedule, rank: i32, i: i32, out: *mut gsel_action) -> gsel_status>,
    pub measured: Option<unsafe extern "C" fn(pass: *mut gsel_pass, path: *const c_char, seconds: *mut f64, err: *mut *mut gsel_error) -> gsel_status>,
    pub note: Option<unsafe extern "C" fn(pass: *mut gsel_pass, line: *const c_char)>,
    pub axis_weight: Option<unsafe extern "C" fn(pass: *const gsel_pass, axis: gsel_axis, coordinate: i32) -> f64>,
    pub split_param: Option<unsafe extern "C" fn(pass: *mut gsel_pass, param: i32) -> gsel_status>,
    pub set_layer_placements: Option<unsafe extern "C" fn(pass: *mut gsel_pass, layer: i32, inputs: *const gsel_placement, outputs: *const gsel_placement) -> gsel_status>,
    pub rank_along: Option<unsafe extern "C" fn(pass: *const gsel_pass, axis: gsel_axis, coordinate: i32) -> i32>,
    pub suggest: Option<unsafe extern "C" fn(pass: *mut gsel_pass, suggestion: *const gsel_suggestion) -> gsel_status>,
}
unsafe impl crate::Sized32 for gsel_pass_api_v1 {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_strategy_v1 {
    pub struct_size: u32,
    pub axes: u32,
    pub options: *const gsel_option_v1,
    pub n_options: i32,
    pub reserved: i32,
    pub compile: Option<unsafe extern "C" fn(host: *const gsel_host_v1, api: *const gsel_pass_api_v1, pass: *mut gsel_pass, axis: gsel_axis, err: *mut *mut gsel_error) -> gsel_status>,
    pub advise: Option<unsafe extern "C" fn(host: *const gsel_host_v1, api: *const gsel_pass_api_v1, pass: *mut gsel_pass, axis: gsel_axis, topic: i32, err: *mut *mut gsel_error) -> gsel_status>,
}
unsafe impl crate::Sized32 for gsel_strategy_v1 {}
#[repr(C)]
pub struct gsel_stream {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_event {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_graph {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_optimizer_step {
    pub struct_size: u32,
    pub kind: i32,
    pub param: *mut f32,
    pub gradient: *const f32,
    pub state0: *mut f32,
    pub state1: *mut f32,
    pub count: u64,
    pub t: i64,
    pub gradient_scale: f64,
    pub learning_rate: f64,
    pub weight_decay: f64,
    pub momentum: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    pub param16: *mut c_void,
    pub param16_dtype: gsel_dtype,
    pub reserved: i32,
    pub scale0: *mut f32,
    pub scale1: *mut f32,
    pub factors: *const c_void,
    pub update_scale: *const f64,
}
unsafe impl crate::Sized32 for gsel_optimizer_step {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_update_scale {
    pub struct_size: u32,
    pub n_weights: i32,
    pub weights: *const *const f64,
    pub squares: *const f64,
    pub ends: *const i32,
    pub n_ends: i32,
    pub first_norm: i32,
    pub loss_scale: f64,
    pub clip_norm: f64,
    pub out: *mut f64,
    pub refuses_non_finite: i32,
    pub reserved: i32,
}
unsafe impl crate::Sized32 for gsel_update_scale {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_low_rank_step {
    pub struct_size: u32,
    pub kind: i32,
    pub rows: i64,
    pub cols: i64,
    pub rank: i64,
    pub matrix: *mut f32,
    pub left: *mut f32,
    pub right: *mut f32,
    pub error: *mut f32,
    pub old_error: *const f32,
    pub key: u64,
    pub scale: f64,
    pub ranks: i32,
    pub reserved: i32,
}
unsafe impl crate::Sized32 for gsel_low_rank_step {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_device_options {
    pub struct_size: u32,
    pub flags: u32,
    pub ordinal: i32,
    pub reserved: i32,
    pub uuid: gsel_str,
}
unsafe impl crate::Sized32 for gsel_device_options {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_device_description {
    pub struct_size: u32,
    pub flags: u32,
    pub dlpack_type: i32,
    pub ordinal: i32,
    pub memory_bytes: u64,
    pub free_bytes: u64,
    pub name: gsel_str,
    pub uuid: gsel_str,
}
unsafe impl crate::Sized32 for gsel_device_description {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_memory_info {
    pub struct_size: u32,
    pub kind: i32,
    pub ordinal: i32,
    pub reserved: i32,
    pub base: *mut c_void,
    pub bytes: u64,
}
unsafe impl crate::Sized32 for gsel_memory_info {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_device_v1 {
    pub struct_size: u32,
    pub reserved: u32,
    pub open: Option<unsafe extern "C" fn(host: *const gsel_host_v1, options: *const gsel_device_options, out_ctx: *mut *mut c_void, err: *mut *mut gsel_error) -> gsel_status>,
    pub close: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    pub describe: Option<unsafe extern "C" fn(ctx: *mut c_void, out: *mut gsel_device_description, err: *mut *mut gsel_error) -> gsel_status>,
    pub alloc: Option<unsafe extern "C" fn(ctx: *mut c_void, kind: i32, bytes: u64, out: *mut *mut c_void, err: *mut *mut gsel_error) -> gsel_status>,
    pub free: Option<unsafe extern "C" fn(ctx: *mut c_void, memory: *mut c_void)>,
    pub memory_of: Option<unsafe extern "C" fn(ctx: *mut c_void, memory: *const c_void, out: *mut gsel_memory_info, err: *mut *mut gsel_error) -> gsel_status>,
    pub copy: Option<unsafe extern "C" fn(ctx: *mut c_void, dst: *mut c_void, src: *const c_void, bytes: u64, direction: i32, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub copy_rows: Option<unsafe extern "C" fn(ctx: *mut c_void, dst: *mut c_void, dst_stride_bytes: u64, src: *const c_void, src_stride_bytes: u64, row_bytes: u64, rows: u64, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub zero: Option<unsafe extern "C" fn(ctx: *mut c_void, dst: *mut c_void, bytes: u64, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub stream_create: Option<unsafe extern "C" fn(ctx: *mut c_void, flags: u32, out: *mut *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub stream_import: Option<unsafe extern "C" fn(ctx: *mut c_void, native: *mut c_void, out: *mut *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub stream_native: Option<unsafe extern "C" fn(ctx: *mut c_void, stream: *mut gsel_stream) -> *mut c_void>,
    pub stream_free: Option<unsafe extern "C" fn(ctx: *mut c_void, stream: *mut gsel_stream)>,
    pub stream_wait: Option<unsafe extern "C" fn(ctx: *mut c_void, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub event_create: Option<unsafe extern "C" fn(ctx: *mut c_void, flags: u32, out: *mut *mut gsel_event, err: *mut *mut gsel_error) -> gsel_status>,
    pub event_import: Option<unsafe extern "C" fn(ctx: *mut c_void, native: *mut c_void, out: *mut *mut gsel_event, err: *mut *mut gsel_error) -> gsel_status>,
    pub event_native: Option<unsafe extern "C" fn(ctx: *mut c_void, event: *mut gsel_event) -> *mut c_void>,
    pub event_free: Option<unsafe extern "C" fn(ctx: *mut c_void, event: *mut gsel_event)>,
    pub event_record: Option<unsafe extern "C" fn(ctx: *mut c_void, event: *mut gsel_event, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub event_wait: Option<unsafe extern "C" fn(ctx: *mut c_void, event: *mut gsel_event, err: *mut *mut gsel_error) -> gsel_status>,
    pub event_done: Option<unsafe extern "C" fn(ctx: *mut c_void, event: *mut gsel_event, done: *mut i32, err: *mut *mut gsel_error) -> gsel_status>,
    pub stream_wait_event: Option<unsafe extern "C" fn(ctx: *mut c_void, stream: *mut gsel_stream, event: *mut gsel_event, err: *mut *mut gsel_error) -> gsel_status>,
    pub event_seconds: Option<unsafe extern "C" fn(ctx: *mut c_void, a: *mut gsel_event, b: *mut gsel_event) -> f64>,
    pub cast: Option<unsafe extern "C" fn(ctx: *mut c_void, dst: *mut c_void, dst_dtype: gsel_dtype, src: *const c_void, src_dtype: gsel_dtype, count: u64, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub scale: Option<unsafe extern "C" fn(ctx: *mut c_void, dst: *mut c_void, dtype: gsel_dtype, factor: f64, count: u64, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub add: Option<unsafe extern "C" fn(ctx: *mut c_void, dst: *mut c_void, src: *const c_void, dtype: gsel_dtype, count: u64, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub sum_squares: Option<unsafe extern "C" fn(ctx: *mut c_void, src: *const c_void, dtype: gsel_dtype, count: u64, out: *mut f64, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub optimizer_step: Option<unsafe extern "C" fn(ctx: *mut c_void, step: *const gsel_optimizer_step, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub enter: Option<unsafe extern "C" fn(ctx: *mut c_void, before: *mut *mut c_void, err: *mut *mut gsel_error) -> gsel_status>,
    pub leave: Option<unsafe extern "C" fn(ctx: *mut c_void, before: *mut c_void)>,
    pub memory_closed: Option<unsafe extern "C" fn(ctx: *mut c_void, memory: *const c_void, ordinal: i32, closed: *mut i32, err: *mut *mut gsel_error) -> gsel_status>,
    pub low_rank_step: Option<unsafe extern "C" fn(ctx: *mut c_void, step: *const gsel_low_rank_step, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub capture_begin: Option<unsafe extern "C" fn(ctx: *mut c_void, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub capture_check: Option<unsafe extern "C" fn(ctx: *mut c_void, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub capture_end: Option<unsafe extern "C" fn(ctx: *mut c_void, stream: *mut gsel_stream, out: *mut *mut gsel_graph, err: *mut *mut gsel_error) -> gsel_status>,
    pub graph_launch: Option<unsafe extern "C" fn(ctx: *mut c_void, graph: *mut gsel_graph, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub graph_free: Option<unsafe extern "C" fn(ctx: *mut c_void, graph: *mut gsel_graph)>,
    pub step_factors: Option<unsafe extern "C" fn(ctx: *mut c_void, step: *const gsel_optimizer_step, out: *mut c_void, err: *mut *mut gsel_error) -> gsel_status>,
    pub update_scale: Option<unsafe extern "C" fn(ctx: *mut c_void, scale: *const gsel_update_scale, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub sum_numbers: Option<unsafe extern "C" fn(ctx: *mut c_void, numbers: *const f64, ends: *const i32, n_ends: i32, out: *mut f64, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
    pub reduce: Option<unsafe extern "C" fn(ctx: *mut c_void, dst: *mut c_void, srcs: *const *const c_void, n: i32, dtype: gsel_dtype, op: gsel_op, count: u64, stream: *mut gsel_stream, err: *mut *mut gsel_error) -> gsel_status>,
}
unsafe impl crate::Sized32 for gsel_device_v1 {}
#[repr(C)]
pub struct gsel_link {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_window {
    _private: [u8; 0],
}
#[repr(C)]
pub struct gsel_posted {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_control_v1 {
    pub struct_size: u32,
    pub reserved: u32,
    pub ctx: *mut c_void,
    pub exchange: Option<unsafe extern "C" fn(ctx: *mut c_void, mine: *const c_void, all: *mut c_void, bytes: u64, err: *mut *mut gsel_error) -> gsel_status>,
    pub announce: Option<unsafe extern "C" fn(ctx: *mut c_void, call: *const gsel_collective, err: *mut *mut gsel_error) -> gsel_status>,
    pub look: Option<unsafe extern "C" fn(ctx: *mut c_void, err: *mut *mut gsel_error) -> gsel_status>,
    pub await_break: Option<unsafe extern "C" fn(ctx: *mut c_void, seconds: f64) -> i32>,
}
unsafe impl crate::Sized32 for gsel_control_v1 {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_join {
    pub struct_size: u32,
    pub flags: u32,
    pub rank: i32,
    pub world_size: i32,
    pub timeout_s: f64,
    pub join_timeout_s: f64,
    pub device_table: *const gsel_device_v1,
    pub device_ctx: *mut c_void,
    pub control: *const gsel_control_v1,
    pub address: gsel_str,
}
unsafe impl crate::Sized32 for gsel_join {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_transport_description {
    pub struct_size: u32,
    pub flags: u32,
    pub dlpack_types: u64,
    pub version: i32,
    pub reserved: i32,
    pub library: gsel_str,
}
unsafe impl crate::Sized32 for gsel_transport_description {}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_enqueued {
    pub link: *mut gsel_link,
    pub call: *const gsel_collective,
    pub stream: *mut gsel_stream,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_transfer {
    pub peer: i32,
    pub tag: u32,
    pub send: *const c_void,
    pub recv: *mut c_void,
    pub bytes: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gsel_transport_v2 {
    pub struct_size: u32,
    pub reserved: u32,
    pub open: Option<unsafe extern "C" fn(host: *const gsel_host_v1, out_ctx: *mut *mut c_void, err: *mut *mut gsel_error) -> gsel_status>,
    pub close: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    pub describe: Option<unsafe extern "C" fn(ctx: *mut c_void, out: *mut gsel_transport_description, err: *mut *mut gsel_error) -> gsel_status>,
    pub link_join: Option<unsafe extern "C" fn(ctx: *mut c_void, join: *const gsel_join, out: *mut *mut gsel_link, err: *mut *mut gsel_error) -> gsel_status>,
    pub link_leave: Option<unsafe extern "C" fn(link: *mut gsel_link)>,
    pub link_abort: Option<unsafe extern "C" fn(link: *mut gsel_link, reason: *const c_char)>,
    pub link_error: Option<unsafe extern "C" fn(link: *mut gsel_link, err: *mut *mut gsel_error) -> gsel_status>,
    pub supports: Option<unsafe extern "C" fn(link: *mut gsel_link, call: *const gsel_collective, reason: *mut c_char, capacity: usize) -> i32>,
    pub enqueue: Option<unsafe extern "C" fn(calls: *const gsel_enqueued, n: u64, timeout_s: f64, err: *mut *mut gsel_error) -> gsel_status>,
    pub memory_alloc: Option<unsafe extern "C" fn(ctx: *mut c_void, device_table: *const gsel_device_v1, device_ctx: *mut c_void, bytes: u64, out: *mut *mut c_void, err: *mut *mut gsel_error) -> gsel_status>,
    pub memory_free: Option<unsafe extern "C" fn(ctx: *mut c_void, device_table: *const gsel_device_v1, device_ctx: *mut c_void, memory: *mut c_void)>,
    pub window_register: Option<unsafe extern "C" fn(link: *mut gsel_link, memory: *mut c_void, bytes: u64, out: *mut *mut gsel_window, err: *mut *mut gsel_error) -> gsel_status>,
    pub window_release: Option<unsafe extern "C" fn(link: *mut gsel_link, window: *mut gsel_window)>,
    pub link_native: Option<unsafe extern "C" fn(link: *mut gsel_link) -> *mut c_void>,
    pub post: Option<unsafe extern "C" fn(link: *mut gsel_link, transfer: *const gsel_transfer, out: *mut *mut gsel_posted, err: *mut *mut gsel_error) -> gsel_status>,
    pub test: Option<unsafe extern "C" fn(posted: *mut gsel_posted, seconds: f64, done: *mut i32, err: *mut *mut gsel_error) -> gsel_status>,
    pub release: Option<unsafe extern "C" fn(posted: *mut gsel_posted)>,
    pub link_note: Option<unsafe extern "C" fn(link: *mut gsel_link) -> *const c_char>,
    pub library_note: Option<unsafe extern "C" fn() -> *const c_char>,
}
unsafe impl crate::Sized32 for gsel_transport_v2 {}
extern "C" {
    pub fn gsel_version() -> i32;
    pub fn gsel_version_text() -> *const c_char;
    pub fn gsel_str_from(text: *const c_char) -> gsel_str;
    pub fn gsel_dtype_bytes(dtype: gsel_dtype) -> usize;
    pub fn gsel_dtype_name(dtype: gsel_dtype) -> *const c_char;
    pub fn gsel_axis_count() -> i32;
    pub fn gsel_axis_name(axis: gsel_axis) -> *const c_char;
    pub fn gsel_shard_range(n: i64, parts: i64, index: i64) -> gsel_range;
    pub fn gsel_comm_count_init(count: *mut gsel_comm_count, struct_size: usize);
    pub fn gsel_status_text(status: gsel_status) -> *const c_char;
    pub fn gsel_status_name(status: gsel_status) -> *const c_char;
    pub fn gsel_error_code(error: *const gsel_error) -> gsel_status;
    pub fn gsel_error_message(error: *const gsel_error) -> gsel_str;
    pub fn gsel_error_cause(error: *const gsel_error) -> *const gsel_error;
    pub fn gsel_error_rank(error: *const gsel_error) -> i32;
    pub fn gsel_error_file(error: *const gsel_error) -> gsel_str;
    pub fn gsel_error_line(error: *const gsel_error) -> i32;
    pub fn gsel_error_column(error: *const gsel_error) -> i32;
    pub fn gsel_error_token(error: *const gsel_error) -> gsel_str;
    pub fn gsel_error_format(error: *const gsel_error, buffer: *mut c_char, capacity: usize) -> usize;
    pub fn gsel_error_free(error: *mut gsel_error);
    pub fn gsel_random_uniform(key: u64, counter: u64) -> f32;
    pub fn gsel_random_normal(key: u64, counter: u64) -> f32;
    pub fn gsel_param_options_init(options: *mut gsel_param_options, struct_size: usize);
    pub fn gsel_value_options_init(options: *mut gsel_value_options, struct_size: usize);
    pub fn gsel_phase_init(phase: *mut gsel_phase, struct_size: usize);
    pub fn gsel_layer_options_init(options: *mut gsel_layer_options, struct_size: usize);
    pub fn gsel_model_create(out: *mut *mut gsel_model, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_model_add_param(model: *mut gsel_model, options: *const gsel_param_options, out_id: *mut i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_model_add_value(model: *mut gsel_model, options: *const gsel_value_options, out_id: *mut i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_model_add_layer(model: *mut gsel_model, options: *const gsel_layer_options, out_id: *mut i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_model_finish(model: *mut gsel_model, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_model_param_count(model: *const gsel_model) -> i32;
    pub fn gsel_model_value_count(model: *const gsel_model) -> i32;
    pub fn gsel_model_layer_count(model: *const gsel_model) -> i32;
    pub fn gsel_model_element_count(model: *const gsel_model) -> i64;
    pub fn gsel_model_free(model: *mut gsel_model);
    pub fn gsel_config_load(path: gsel_str, out: *mut *mut gsel_config, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_config_parse(text: gsel_str, name: gsel_str, out: *mut *mut gsel_config, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_config_get(config: *const gsel_config, key: gsel_str) -> gsel_str;
    pub fn gsel_config_set(config: *mut gsel_config, key: gsel_str, value: gsel_str, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_config_free(config: *mut gsel_config);
    pub fn gsel_unique_id_create(out: *mut gsel_unique_id, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_unique_id_listen(out: *mut gsel_unique_id, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_options_init(options: *mut gsel_comm_options, struct_size: usize);
    pub fn gsel_comm_init(options: *const gsel_comm_options, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_rank(comm: *const gsel_comm) -> i32;
    pub fn gsel_comm_world_size(comm: *const gsel_comm) -> i32;
    pub fn gsel_comm_name(comm: *const gsel_comm) -> gsel_str;
    pub fn gsel_allreduce(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: gsel_dtype, op: gsel_op, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_reduce(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: gsel_dtype, op: gsel_op, root: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_reduce_scatter(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: gsel_dtype, op: gsel_op, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_reduce_scatterv(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, counts: *const u64, offsets: *const u64, dtype: gsel_dtype, op: gsel_op, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_allgather(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: gsel_dtype, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_allgatherv(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, counts: *const u64, offsets: *const u64, dtype: gsel_dtype, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_broadcast(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: gsel_dtype, root: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_gather(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: gsel_dtype, root: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_gatherv(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, counts: *const u64, offsets: *const u64, dtype: gsel_dtype, root: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_scatter(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: gsel_dtype, root: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_scatterv(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, counts: *const u64, offsets: *const u64, dtype: gsel_dtype, root: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_alltoall(comm: *mut gsel_comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: gsel_dtype, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_alltoallv(comm: *mut gsel_comm, send: *const c_void, send_counts: *const u64, send_offsets: *const u64, recv: *mut c_void, recv_counts: *const u64, recv_offsets: *const u64, dtype: gsel_dtype, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_barrier(comm: *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_send(comm: *mut gsel_comm, send: *const c_void, count: usize, dtype: gsel_dtype, peer: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_recv(comm: *mut gsel_comm, recv: *mut c_void, count: usize, dtype: gsel_dtype, peer: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_sendrecv(comm: *mut gsel_comm, send: *const c_void, send_count: usize, to: i32, recv: *mut c_void, recv_count: usize, from: i32, dtype: gsel_dtype, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_message_init(message: *mut gsel_message, struct_size: usize);
    pub fn gsel_send_tag(comm: *mut gsel_comm, send: *const c_void, count: usize, dtype: gsel_dtype, peer: i32, tag: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_recv_tag(comm: *mut gsel_comm, recv: *mut c_void, count: usize, dtype: gsel_dtype, source: i32, tag: i32, received: *mut gsel_message, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_probe(comm: *mut gsel_comm, source: i32, tag: i32, message: *mut gsel_message, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_iprobe(comm: *mut gsel_comm, source: i32, tag: i32, found: *mut i32, message: *mut gsel_message, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_collective_init(call: *mut gsel_collective, struct_size: usize);
    pub fn gsel_comm_run(comm: *mut gsel_comm, call: *const gsel_collective, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_group_run(comms: *const *mut gsel_comm, calls: *const *const gsel_collective, n: usize, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_start(comm: *mut gsel_comm, call: *const gsel_collective, out: *mut *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_group_start(comm: *mut gsel_comm, calls: *const *const gsel_collective, n: usize, out: *mut *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_create(comm: *mut gsel_comm, call: *const gsel_collective, out: *mut *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_start(request: *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_run(request: *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_test(request: *mut gsel_request, done: *mut i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_wait(request: *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_wait_any(requests: *const *mut gsel_request, n: usize, index: *mut usize, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_event(request: *mut gsel_request, event: *mut *mut c_void, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_wait_for(request: *mut gsel_request, seconds: f64, done: *mut i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_cancel(request: *mut gsel_request, cancelled: *mut i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_free(request: *mut gsel_request);
    pub fn gsel_queue_create(out: *mut *mut gsel_queue, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_queue_fd(queue: *const gsel_queue) -> i32;
    pub fn gsel_request_notify(request: *mut gsel_request, queue: *mut gsel_queue, user: *mut c_void, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_queue_next(queue: *mut gsel_queue, seconds: f64, found: *mut i32, user: *mut *mut c_void, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_queue_free(queue: *mut gsel_queue);
    pub fn gsel_mem_alloc(comm: *mut gsel_comm, bytes: usize, out: *mut *mut c_void, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_mem_free(comm: *mut gsel_comm, memory: *mut c_void, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_mem_register(comm: *mut gsel_comm, memory: *mut c_void, bytes: usize, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_mem_unregister(comm: *mut gsel_comm, memory: *mut c_void, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_set_stream(comm: *mut gsel_comm, stream: *mut c_void, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_synchronize(comm: *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_get_async_error(comm: *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_op_create(name: gsel_str, record_elems: usize, function: gsel_op_fn, user_data: *mut c_void, free_user_data: gsel_free_fn, out: *mut gsel_op, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_op_create_scaled_sum(factor: f64, out: *mut gsel_op, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_op_free(op: gsel_op);
    pub fn gsel_reduce_local(inputs: *const *const c_void, n: usize, out: *mut c_void, count: usize, dtype: gsel_dtype, op: gsel_op, order: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_split(comm: *mut gsel_comm, colour: i32, key: i32, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_create_group(comm: *mut gsel_comm, ranks: *const i32, n: usize, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_dup(comm: *mut gsel_comm, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_shrink(comm: *mut gsel_comm, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_shrink_without(comm: *mut gsel_comm, ranks: *const i32, n: usize, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_resync(comm: *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_grow(comm: *mut gsel_comm, options: *const gsel_comm_options, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_merge(comm: *mut gsel_comm, high: i32, options: *const gsel_comm_options, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_start_split(comm: *mut gsel_comm, colour: i32, key: i32, out: *mut *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_start_dup(comm: *mut gsel_comm, out: *mut *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_start_create_group(comm: *mut gsel_comm, ranks: *const i32, n: usize, out: *mut *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_start_shrink(comm: *mut gsel_comm, without: *const i32, n: usize, out: *mut *mut gsel_request, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_request_take_comm(request: *mut gsel_request, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_set_timeout(comm: *mut gsel_comm, timeout_s: f64, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_explanation_init(explanation: *mut gsel_comm_explanation, struct_size: usize);
    pub fn gsel_comm_explain(comm: *mut gsel_comm, call: *const gsel_collective, out: *mut gsel_comm_explanation, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_trace(comm: *const gsel_comm, out: *mut *mut gsel_trace, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trace_process(pid: i32, out: *mut *mut gsel_trace, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trace_json(trace: *const gsel_trace) -> gsel_str;
    pub fn gsel_trace_free(trace: *mut gsel_trace);
    pub fn gsel_comm_counts(comm: *const gsel_comm, kind: gsel_collective_kind, out: *mut gsel_comm_count, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_comm_abort(comm: *mut gsel_comm, reason: gsel_str);
    pub fn gsel_comm_free(comm: *mut gsel_comm);
    pub fn gsel_program_parse(text: gsel_str, name: gsel_str, out: *mut *mut gsel_program, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_program_text(program: *const gsel_program) -> gsel_str;
    pub fn gsel_program_length(program: *const gsel_program) -> i32;
    pub fn gsel_program_instr(program: *const gsel_program, i: i32, out: *mut gsel_instr, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_program_placements(program: *const gsel_program) -> gsel_str;
    pub fn gsel_program_verify(programs: *const *const gsel_program, n: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_program_traffic(program: *const gsel_program, step: i64, kind: gsel_instr_kind, axis: gsel_axis, out: *mut gsel_comm_count, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_program_free(program: *mut gsel_program);
    pub fn gsel_optimizer_options_init(options: *mut gsel_optimizer_options, struct_size: usize);
    pub fn gsel_trainer_options_init(options: *mut gsel_trainer_options, struct_size: usize);
    pub fn gsel_trainer_create(comm: *mut gsel_comm, model: *mut gsel_model, options: *const gsel_trainer_options, out: *mut *mut gsel_trainer, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_step_report_init(report: *mut gsel_step_report, struct_size: usize);
    pub fn gsel_trainer_step(trainer: *mut gsel_trainer, report: *mut gsel_step_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_work_init(work: *mut gsel_work, struct_size: usize);
    pub fn gsel_trainer_next_work(trainer: *mut gsel_trainer, out: *mut gsel_work, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_complete(trainer: *mut gsel_trainer, ticket: u64, status: gsel_status, message: gsel_str, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_report(trainer: *const gsel_trainer, report: *mut gsel_step_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_evaluate(trainer: *mut gsel_trainer, first_sample: i64, data: gsel_data_fn, user_data: *mut c_void, report: *mut gsel_step_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_begin_evaluation(trainer: *mut gsel_trainer, first_sample: i64, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_holds_params(trainer: *const gsel_trainer) -> i32;
    pub fn gsel_trainer_infer(trainer: *mut gsel_trainer, value: i32, n_samples: i64, data: gsel_data_fn, user_data: *mut c_void, dst: *mut c_void, dst_bytes: usize, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_read_param(trainer: *mut gsel_trainer, param: i32, dst: *mut c_void, dst_bytes: usize, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_read_gradient(trainer: *mut gsel_trainer, param: i32, dst: *mut c_void, dst_bytes: usize, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_set_learning_rate(trainer: *mut gsel_trainer, learning_rate: f64, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_program(trainer: *const gsel_trainer) -> *const gsel_program;
    pub fn gsel_trainer_counts(trainer: *const gsel_trainer, kind: gsel_instr_kind, axis: gsel_axis, out: *mut gsel_comm_count, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_memory_part_init(part: *mut gsel_memory_part, struct_size: usize);
    pub fn gsel_trainer_memory_count(trainer: *const gsel_trainer) -> i32;
    pub fn gsel_trainer_memory(trainer: *const gsel_trainer, i: i32, out: *mut gsel_memory_part, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_step_json(trainer: *mut gsel_trainer, out: *mut gsel_str, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_param_used(trainer: *const gsel_trainer, param: i32) -> i32;
    pub fn gsel_trainer_free(trainer: *mut gsel_trainer);
    pub fn gsel_breach_init(breach: *mut gsel_breach, struct_size: usize);
    pub fn gsel_model_check_options_init(options: *mut gsel_model_check_options, struct_size: usize);
    pub fn gsel_model_check(model: *mut gsel_model, options: *const gsel_model_check_options, out: *mut *mut gsel_model_check_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_model_check_summary(report: *const gsel_model_check_report) -> gsel_str;
    pub fn gsel_model_check_note_count(report: *const gsel_model_check_report) -> i32;
    pub fn gsel_model_check_note(report: *const gsel_model_check_report, i: i32) -> gsel_str;
    pub fn gsel_model_check_breach_count(report: *const gsel_model_check_report) -> i32;
    pub fn gsel_model_check_breach(report: *const gsel_model_check_report, i: i32, out: *mut gsel_breach, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_model_check_free(report: *mut gsel_model_check_report);
    pub fn gsel_checkpoint_report_init(report: *mut gsel_checkpoint_report, struct_size: usize);
    pub fn gsel_checkpoint_options_init(options: *mut gsel_checkpoint_options, struct_size: usize);
    pub fn gsel_trainer_save(trainer: *mut gsel_trainer, folder: gsel_str, options: *const gsel_checkpoint_options, report: *mut gsel_checkpoint_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_save_begin(trainer: *mut gsel_trainer, folder: gsel_str, options: *const gsel_checkpoint_options, report: *mut gsel_checkpoint_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_save_state(trainer: *const gsel_trainer) -> i32;
    pub fn gsel_trainer_save_wait(trainer: *mut gsel_trainer, report: *mut gsel_checkpoint_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_load(trainer: *mut gsel_trainer, path: gsel_str, report: *mut gsel_checkpoint_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_tool_options_init(options: *mut gsel_checkpoint_tool_options, struct_size: usize);
    pub fn gsel_checkpoint_open(path: gsel_str, out: *mut *mut gsel_checkpoint, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_free(checkpoint: *mut gsel_checkpoint);
    pub fn gsel_checkpoint_info_init(info: *mut gsel_checkpoint_info, struct_size: usize);
    pub fn gsel_checkpoint_inspect(checkpoint: *const gsel_checkpoint, out: *mut gsel_checkpoint_info, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_entry_init(entry: *mut gsel_checkpoint_entry, struct_size: usize);
    pub fn gsel_checkpoint_entry_get(checkpoint: *const gsel_checkpoint, i: i32, out: *mut gsel_checkpoint_entry, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_piece_init(piece: *mut gsel_checkpoint_piece, struct_size: usize);
    pub fn gsel_checkpoint_piece_get(checkpoint: *const gsel_checkpoint, entry: i32, i: i32, out: *mut gsel_checkpoint_piece, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_own_init(own: *mut gsel_checkpoint_own, struct_size: usize);
    pub fn gsel_checkpoint_own_get(checkpoint: *mut gsel_checkpoint, i: i32, rank: i32, out: *mut gsel_checkpoint_own, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_file_init(file: *mut gsel_checkpoint_file, struct_size: usize);
    pub fn gsel_checkpoint_file_get(checkpoint: *const gsel_checkpoint, i: i32, out: *mut gsel_checkpoint_file, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_verify(checkpoint: *mut gsel_checkpoint, options: *const gsel_checkpoint_tool_options, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_difference_init(difference: *mut gsel_checkpoint_difference, struct_size: usize);
    pub fn gsel_checkpoint_diff(first: *mut gsel_checkpoint, second: *mut gsel_checkpoint, options: *const gsel_checkpoint_tool_options, out: *mut *mut gsel_checkpoint_differences, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_difference_count(differences: *const gsel_checkpoint_differences) -> i32;
    pub fn gsel_checkpoint_difference_get(differences: *const gsel_checkpoint_differences, i: i32, out: *mut gsel_checkpoint_difference, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_differences_free(differences: *mut gsel_checkpoint_differences);
    pub fn gsel_checkpoint_consolidate(checkpoint: *mut gsel_checkpoint, path: gsel_str, options: *const gsel_checkpoint_tool_options, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_checkpoint_reshard(checkpoint: *mut gsel_checkpoint, folder: gsel_str, n: i32, options: *const gsel_checkpoint_tool_options, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_tensor_from_dlpack(given: *const gsel_dlpack_tensor, out: *mut gsel_tensor, device: *mut gsel_dlpack_device, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_tensor_from_dlpack_versioned(given: *const gsel_dlpack_versioned, out: *mut gsel_tensor, device: *mut gsel_dlpack_device, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_tensor_to_dlpack(tensor: *const gsel_tensor, device: *const gsel_dlpack_device, free_user_data: gsel_free_fn, user_data: *mut c_void, out: *mut *mut gsel_dlpack_versioned, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_log_set(sink: gsel_log_fn, level: gsel_log_level, user_data: *mut c_void, free_user_data: gsel_free_fn);
    pub fn gsel_mesh_init(mesh: *mut gsel_mesh, struct_size: usize);
    pub fn gsel_mesh_resolve(config: *const gsel_config, world_size: i32, out: *mut gsel_mesh, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_mesh_coordinate(mesh: *const gsel_mesh, rank: i32, axis: gsel_axis) -> i32;
    pub fn gsel_mesh_rank(mesh: *const gsel_mesh, coordinates: *const i32, n: i32) -> i32;
    pub fn gsel_mesh_split(comm: *mut gsel_comm, mesh: *const gsel_mesh, axes: u32, out: *mut *mut gsel_comm, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_pipeline_options_init(options: *mut gsel_pipeline_options, struct_size: usize);
    pub fn gsel_pipeline_create(comm: *mut gsel_comm, model: *mut gsel_model, options: *const gsel_pipeline_options, out: *mut *mut gsel_pipeline, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_pipeline_report_init(report: *mut gsel_pipeline_report, struct_size: usize);
    pub fn gsel_pipeline_run(pipeline: *mut gsel_pipeline, what: i32, out: *mut gsel_pipeline_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_pipeline_stage_init(stage: *mut gsel_pipeline_stage, struct_size: usize);
    pub fn gsel_pipeline_stage_count(pipeline: *const gsel_pipeline) -> i32;
    pub fn gsel_pipeline_stage_get(pipeline: *const gsel_pipeline, i: i32, out: *mut gsel_pipeline_stage, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_pipeline_program(pipeline: *const gsel_pipeline) -> *const gsel_program;
    pub fn gsel_pipeline_free(pipeline: *mut gsel_pipeline);
    pub fn gsel_device_info_init(info: *mut gsel_device_info, struct_size: usize);
    pub fn gsel_inventory_detect(out: *mut *mut gsel_inventory, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_inventory_load(path: gsel_str, out: *mut *mut gsel_inventory, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_inventory_parse(text: gsel_str, name: gsel_str, out: *mut *mut gsel_inventory, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_inventory_device_count(inventory: *const gsel_inventory) -> i32;
    pub fn gsel_inventory_device(inventory: *const gsel_inventory, index: i32, info: *mut gsel_device_info, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_inventory_host_count(inventory: *const gsel_inventory) -> i32;
    pub fn gsel_inventory_host_name(inventory: *const gsel_inventory, host: i32) -> gsel_str;
    pub fn gsel_partition_info_init(info: *mut gsel_partition_info, struct_size: usize);
    pub fn gsel_inventory_partition(inventory: *const gsel_inventory, device: i32, partition: i32, info: *mut gsel_partition_info, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_interconnect_info_init(info: *mut gsel_interconnect_info, struct_size: usize);
    pub fn gsel_inventory_interconnect_count(inventory: *const gsel_inventory, host: i32) -> i32;
    pub fn gsel_inventory_interconnect(inventory: *const gsel_inventory, host: i32, i: i32, info: *mut gsel_interconnect_info, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_inventory_json(inventory: *const gsel_inventory) -> gsel_str;
    pub fn gsel_inventory_text(inventory: *const gsel_inventory) -> gsel_str;
    pub fn gsel_inventory_free(inventory: *mut gsel_inventory);
    pub fn gsel_resolve_options_init(options: *mut gsel_resolve_options, struct_size: usize);
    pub fn gsel_resolve(options: *const gsel_resolve_options, out: *mut *mut gsel_selection, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_compat_count() -> i32;
    pub fn gsel_compat_name(i: i32) -> gsel_str;
    pub fn gsel_compat_summary(i: i32) -> gsel_str;
    pub fn gsel_selection_device_count(selection: *const gsel_selection) -> i32;
    pub fn gsel_selection_device(selection: *const gsel_selection, position: i32, info: *mut gsel_device_info, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_candidate_init(candidate: *mut gsel_candidate, struct_size: usize);
    pub fn gsel_selection_candidate_count(selection: *const gsel_selection) -> i32;
    pub fn gsel_selection_candidate(selection: *const gsel_selection, i: i32, candidate: *mut gsel_candidate, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_decision_init(decision: *mut gsel_decision, struct_size: usize);
    pub fn gsel_selection_decision_count(selection: *const gsel_selection) -> i32;
    pub fn gsel_selection_decision(selection: *const gsel_selection, i: i32, decision: *mut gsel_decision, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_selection_warning_count(selection: *const gsel_selection) -> i32;
    pub fn gsel_selection_warning(selection: *const gsel_selection, i: i32) -> gsel_str;
    pub fn gsel_selection_process_count(selection: *const gsel_selection) -> i32;
    pub fn gsel_selection_env(selection: *const gsel_selection, local_rank: i32, out: *mut *const gsel_env_var, n_out: *mut usize, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_selection_host_env(selection: *const gsel_selection, host: gsel_str, local_rank: i32, out: *mut *const gsel_env_var, n_out: *mut usize, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_selection_json(selection: *const gsel_selection) -> gsel_str;
    pub fn gsel_selection_text(selection: *const gsel_selection) -> gsel_str;
    pub fn gsel_selection_free(selection: *mut gsel_selection);
    pub fn gsel_plan_options_init(options: *mut gsel_plan_options, struct_size: usize);
    pub fn gsel_plan_create(options: *const gsel_plan_options, out: *mut *mut gsel_plan, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plan_candidate_init(candidate: *mut gsel_plan_candidate, struct_size: usize);
    pub fn gsel_plan_candidate_count(plan: *const gsel_plan) -> i32;
    pub fn gsel_plan_candidate_get(plan: *const gsel_plan, i: i32, out: *mut gsel_plan_candidate, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plan_text(plan: *const gsel_plan) -> gsel_str;
    pub fn gsel_plan_json(plan: *const gsel_plan) -> gsel_str;
    pub fn gsel_plan_toml(plan: *mut gsel_plan, i: i32, out: *mut gsel_str, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plan_simulation(plan: *mut gsel_plan, i: i32, out: *mut gsel_str, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plan_picture(plan: *mut gsel_plan, out: *mut gsel_str, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plan_estimate(options: *const gsel_plan_options, out: *mut *mut gsel_plan, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plan_compare(options: *const gsel_plan_options, configs: *const *const gsel_config, n: i32, out: *mut *mut gsel_plan, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plan_rows(rows: gsel_str, name: gsel_str, out: *mut *mut gsel_plan, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plan_free(plan: *mut gsel_plan);
    pub fn gsel_plugin_register(plugin: *const gsel_plugin_v1, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plugin_info_init(info: *mut gsel_plugin_info, struct_size: usize);
    pub fn gsel_plugin_list_create(out: *mut *mut gsel_plugin_list, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plugin_list_count(list: *const gsel_plugin_list) -> i32;
    pub fn gsel_plugin_list_get(list: *const gsel_plugin_list, i: i32, info: *mut gsel_plugin_info, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_plugin_list_free(list: *mut gsel_plugin_list);
    pub fn gsel_reserve_options_init(options: *mut gsel_reserve_options, struct_size: usize);
    pub fn gsel_reserve(resolve: *const gsel_resolve_options, options: *const gsel_reserve_options, out: *mut *mut gsel_reservation, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_reservation_selection(reservation: *const gsel_reservation) -> *const gsel_selection;
    pub fn gsel_reservation_free(reservation: *mut gsel_reservation);
    pub fn gsel_schedule_create(name: gsel_str, ranks: i32, microbatches: i32, chunks: i32, out: *mut *mut gsel_schedule, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_schedule_parse(text: gsel_str, name: gsel_str, out: *mut *mut gsel_schedule, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_schedule_text(schedule: *const gsel_schedule) -> gsel_str;
    pub fn gsel_schedule_ranks(schedule: *const gsel_schedule) -> i32;
    pub fn gsel_schedule_stages(schedule: *const gsel_schedule) -> i32;
    pub fn gsel_schedule_microbatches(schedule: *const gsel_schedule) -> i32;
    pub fn gsel_schedule_rank_of(schedule: *const gsel_schedule, stage: i32) -> i32;
    pub fn gsel_schedule_length(schedule: *const gsel_schedule, rank: i32) -> i32;
    pub fn gsel_schedule_action(schedule: *const gsel_schedule, rank: i32, i: i32, out: *mut gsel_action, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_schedule_times_init(times: *mut gsel_schedule_times, struct_size: usize);
    pub fn gsel_simulation_report_init(report: *mut gsel_simulation_report, struct_size: usize);
    pub fn gsel_schedule_simulate(schedule: *const gsel_schedule, times: *const gsel_schedule_times, out: *mut *mut gsel_simulation, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_simulation_get(simulation: *const gsel_simulation, out: *mut gsel_simulation_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_simulation_json(simulation: *const gsel_simulation) -> gsel_str;
    pub fn gsel_simulation_free(simulation: *mut gsel_simulation);
    pub fn gsel_schedule_free(schedule: *mut gsel_schedule);
    pub fn gsel_state_open(trainer: *mut gsel_trainer, out: *mut *mut gsel_state, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_state_free(state: *mut gsel_state);
    pub fn gsel_state_count(state: *const gsel_state) -> i32;
    pub fn gsel_state_entry_init(entry: *mut gsel_state_entry, struct_size: usize);
    pub fn gsel_state_entry_at(state: *const gsel_state, i: i32, out: *mut gsel_state_entry, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_state_runs(state: *const gsel_state, i: i32, piece: i32, runs: *mut gsel_state_run, capacity: i64, total: *mut i64, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_state_read_piece(state: *mut gsel_state, i: i32, piece: i32, first: i64, count: i64, dst: *mut f32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_state_read(state: *mut gsel_state, i: i32, first: i64, count: i64, dst: *mut f32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_state_write(state: *mut gsel_state, i: i32, first: i64, count: i64, src: *const f32, written: *mut i64, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_training_numbers_init(numbers: *mut gsel_training_numbers, struct_size: usize);
    pub fn gsel_state_numbers(state: *const gsel_state, out: *mut gsel_training_numbers, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_state_set_numbers(state: *mut gsel_state, numbers: *const gsel_training_numbers, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_add_state(trainer: *mut gsel_trainer, name: gsel_str, data: *mut c_void, bytes: usize, scope: i32, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_state_own_count(state: *const gsel_state) -> i32;
    pub fn gsel_state_own_init(own: *mut gsel_state_own, struct_size: usize);
    pub fn gsel_state_own_at(state: *const gsel_state, i: i32, out: *mut gsel_state_own, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_rebind_options_init(options: *mut gsel_rebind_options, struct_size: usize);
    pub fn gsel_rebind_report_init(report: *mut gsel_rebind_report, struct_size: usize);
    pub fn gsel_trainer_rebind(trainer: *mut gsel_trainer, comm: *mut gsel_comm, options: *const gsel_rebind_options, report: *mut gsel_rebind_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_join(comm: *mut gsel_comm, model: *mut gsel_model, trainer_options: *const gsel_trainer_options, rebind: *const gsel_rebind_options, out: *mut *mut gsel_trainer, report: *mut gsel_rebind_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_timeline_create(out: *mut *mut gsel_timeline, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_timeline_add(timeline: *mut gsel_timeline, json: gsel_str, name: gsel_str, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_timeline_draw(timeline: *mut gsel_timeline, format: i32, out: *mut gsel_str, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_timeline_free(timeline: *mut gsel_timeline);
    pub fn gsel_weights_report_init(report: *mut gsel_weights_report, struct_size: usize);
    pub fn gsel_trainer_load_weights(trainer: *mut gsel_trainer, path: gsel_str, map: *const gsel_config, report: *mut gsel_weights_report, err: *mut *mut gsel_error) -> gsel_status;
    pub fn gsel_trainer_export_weights(trainer: *mut gsel_trainer, path: gsel_str, map: *const gsel_config, dtype: gsel_dtype, report: *mut gsel_weights_report, err: *mut *mut gsel_error) -> gsel_status;
}
pub const GSEL_OK: i32 = 0;
pub const GSEL_ERR_ARG: i32 = -1;
pub const GSEL_ERR_NOMEM: i32 = -2;
pub const GSEL_ERR_INTERNAL: i32 = -3;
pub const GSEL_ERR_UNSUPPORTED: i32 = -4;
pub const GSEL_ERR_VERSION: i32 = -5;
pub const GSEL_ERR_IO: i32 = -6;
pub const GSEL_ERR_PARSE: i32 = -7;
pub const GSEL_ERR_CONFIG: i32 = -8;
pub const GSEL_ERR_NOT_FOUND: i32 = -9;
pub const GSEL_ERR_PLUGIN: i32 = -10;
pub const GSEL_ERR_PEER: i32 = -11;
pub const GSEL_ERR_TIMEOUT: i32 = -12;
pub const GSEL_ERR_MISMATCH: i32 = -13;
pub const GSEL_ERR_ABORTED: i32 = -14;
pub const GSEL_ERR_FORKED: i32 = -15;
pub const GSEL_ERR_CALLBACK: i32 = -16;
pub const GSEL_ERR_MODEL: i32 = -17;
pub const GSEL_ERR_PROGRAM: i32 = -18;
pub const GSEL_ERR_STATE: i32 = -19;
pub const GSEL_ERR_DEVICE: i32 = -20;
pub const GSEL_ERR_SYNTAX: i32 = -101;
pub const GSEL_ERR_TYPE: i32 = -102;
pub const GSEL_ERR_OUT_OF_RANGE: i32 = -103;
pub const GSEL_ERR_DUPLICATE: i32 = -104;
pub const GSEL_ERR_UNKNOWN_DEVICE: i32 = -105;
pub const GSEL_ERR_AMBIGUOUS: i32 = -106;
pub const GSEL_ERR_UNKNOWN_HOST: i32 = -107;
pub const GSEL_ERR_CONFLICT: i32 = -108;
pub const GSEL_ERR_NO_DEVICES: i32 = -109;
pub const GSEL_ERR_BUSY: i32 = -110;
pub const GSEL_ERR_ALREADY_INITIALIZED: i32 = -111;
pub const GSEL_ERR_PERMISSION: i32 = -112;
pub const GSEL_ERR_RANK_OVERFLOW: i32 = -113;
pub const GSEL_ERROR_LIST_END: i32 = -1000;
pub const GSEL_ADVICE_IDLE: i32 = 1;
pub const GSEL_ADVICE_MEMORY: i32 = 2;
pub const GSEL_ANY_RANK: i32 = -2;
pub const GSEL_ANY_TAG: i32 = -1;
pub const GSEL_AVG: i32 = 5;
pub const GSEL_AXIS_CONTEXT: i32 = 3;
pub const GSEL_AXIS_DATA: i32 = 1;
pub const GSEL_AXIS_PIPELINE: i32 = 2;
pub const GSEL_AXIS_TENSOR: i32 = 0;
pub const GSEL_BACKWARD: i32 = 5;
pub const GSEL_BACKWARD_INPUT: i32 = 3;
pub const GSEL_BACKWARD_IN_HALVES: u32 = 4;
pub const GSEL_BACKWARD_IN_ONE: u32 = 8;
pub const GSEL_BACKWARD_PRODUCES_INPUT: u32 = 1;
pub const GSEL_BACKWARD_PRODUCES_WEIGHT: u32 = 2;
pub const GSEL_BACKWARD_WEIGHT: i32 = 4;
pub const GSEL_BAND: i32 = 6;
pub const GSEL_BF16: i32 = 10;
pub const GSEL_BOOL: i32 = 15;
pub const GSEL_BOR: i32 = 7;
pub const GSEL_BREACH_ALWAYS_ADDED: i32 = 9;
pub const GSEL_BREACH_BATCH: i32 = 12;
pub const GSEL_BREACH_EVALUATION: i32 = 14;
pub const GSEL_BREACH_GRADIENT: i32 = 15;
pub const GSEL_BREACH_HALVES: i32 = 13;
pub const GSEL_BREACH_KEPT_POINTER: i32 = 6;
pub const GSEL_BREACH_KINDS: i32 = 18;
pub const GSEL_BREACH_NOT_ACCUMULATED: i32 = 8;
pub const GSEL_BREACH_NOT_REPEATABLE: i32 = 7;
pub const GSEL_BREACH_OUTSIDE: i32 = 1;
pub const GSEL_BREACH_PARTS: i32 = 16;
pub const GSEL_BREACH_PIECES: i32 = 17;
pub const GSEL_BREACH_PRODUCED: i32 = 11;
pub const GSEL_BREACH_READ_ONLY: i32 = 2;
pub const GSEL_BREACH_STRAY_READ: i32 = 4;
pub const GSEL_BREACH_UNREAD: i32 = 5;
pub const GSEL_BREACH_UNWRITTEN: i32 = 3;
pub const GSEL_BREACH_WRONG_SUM: i32 = 10;
pub const GSEL_BUCKET_OFFLOAD_PARAM: u32 = 16;
pub const GSEL_BUCKET_OFFLOAD_STATE: u32 = 8;
pub const GSEL_BUCKET_SHARD_GRADIENT: u32 = 2;
pub const GSEL_BUCKET_SHARD_PARAM: u32 = 4;
pub const GSEL_BUCKET_SHARD_STATE: u32 = 1;
pub const GSEL_BUCKET_WHOLE_PARAMS: u32 = 32;
pub const GSEL_BUFFER_DATA: i32 = 9;
pub const GSEL_BUFFER_D_INPUT: i32 = 5;
pub const GSEL_BUFFER_D_OUTPUT: i32 = 4;
pub const GSEL_BUFFER_D_PARAM: i32 = 6;
pub const GSEL_BUFFER_GRADIENT: i32 = 11;
pub const GSEL_BUFFER_INPUT: i32 = 2;
pub const GSEL_BUFFER_OUTPUT: i32 = 3;
pub const GSEL_BUFFER_PARAM: i32 = 1;
pub const GSEL_BUFFER_REDUCTION: i32 = 8;
pub const GSEL_BUFFER_SAVED: i32 = 7;
pub const GSEL_BUFFER_STATES: i32 = 12;
pub const GSEL_BUFFER_VALUES: i32 = 10;
pub const GSEL_BXOR: i32 = 8;
pub const GSEL_CHECKPOINT_DIFFERS_BYTES: i32 = 8;
pub const GSEL_CHECKPOINT_DIFFERS_NUMBER: i32 = 1;
pub const GSEL_CHECKPOINT_DIFFERS_ONLY_FIRST: i32 = 2;
pub const GSEL_CHECKPOINT_DIFFERS_ONLY_SECOND: i32 = 3;
pub const GSEL_CHECKPOINT_DIFFERS_SCOPE: i32 = 6;
pub const GSEL_CHECKPOINT_DIFFERS_SHAPE: i32 = 4;
pub const GSEL_CHECKPOINT_DIFFERS_SIZE: i32 = 7;
pub const GSEL_CHECKPOINT_DIFFERS_VALUES: i32 = 5;
pub const GSEL_CHECKPOINT_PARAMS_ONLY: u32 = 1;
pub const GSEL_COLLECTIVE_ALLGATHER: i32 = 3;
pub const GSEL_COLLECTIVE_ALLGATHERV: i32 = 12;
pub const GSEL_COLLECTIVE_ALLREDUCE: i32 = 1;
pub const GSEL_COLLECTIVE_ALLTOALL: i32 = 10;
pub const GSEL_COLLECTIVE_ALLTOALLV: i32 = 15;
pub const GSEL_COLLECTIVE_BARRIER: i32 = 0;
pub const GSEL_COLLECTIVE_BROADCAST: i32 = 4;
pub const GSEL_COLLECTIVE_GATHER: i32 = 8;
pub const GSEL_COLLECTIVE_GATHERV: i32 = 13;
pub const GSEL_COLLECTIVE_IPROBE: i32 = 18;
pub const GSEL_COLLECTIVE_KINDS: i32 = 19;
pub const GSEL_COLLECTIVE_PROBE: i32 = 17;
pub const GSEL_COLLECTIVE_RECV: i32 = 6;
pub const GSEL_COLLECTIVE_REDUCE: i32 = 7;
pub const GSEL_COLLECTIVE_REDUCE_SCATTER: i32 = 2;
pub const GSEL_COLLECTIVE_REDUCE_SCATTERV: i32 = 11;
pub const GSEL_COLLECTIVE_SCATTER: i32 = 9;
pub const GSEL_COLLECTIVE_SCATTERV: i32 = 14;
pub const GSEL_COLLECTIVE_SEND: i32 = 5;
pub const GSEL_COLLECTIVE_SENDRECV: i32 = 16;
pub const GSEL_COMM_BITWISE: u32 = 2;
pub const GSEL_COMM_NOT_THROUGH_HOST: u32 = 4;
pub const GSEL_COMM_NO_THREAD: u32 = 1;
pub const GSEL_COMM_THREAD_MULTIPLE: u32 = 8;
pub const GSEL_COMPRESS_BF16: i32 = 2;
pub const GSEL_COMPRESS_F16: i32 = 1;
pub const GSEL_COMPRESS_LOW_RANK: i32 = 3;
pub const GSEL_COMPRESS_NONE: i32 = 0;
pub const GSEL_COMPUTE_MODE_DEFAULT: i32 = 0;
pub const GSEL_COMPUTE_MODE_EXCLUSIVE_PROCESS: i32 = 1;
pub const GSEL_COMPUTE_MODE_PROHIBITED: i32 = 2;
pub const GSEL_COPY_ON_DEVICE: i32 = 3;
pub const GSEL_COPY_TO_DEVICE: i32 = 1;
pub const GSEL_COPY_TO_HOST: i32 = 2;
pub const GSEL_DEVICE_BY_UUID: i32 = -1;
pub const GSEL_DEVICE_HOST_MEMORY: u32 = 1;
pub const GSEL_DEVICE_SYNCHRONOUS: u32 = 2;
pub const GSEL_EVENT_TIMING: u32 = 1;
pub const GSEL_F16: i32 = 9;
pub const GSEL_F32: i32 = 11;
pub const GSEL_F64: i32 = 12;
pub const GSEL_F8E4M3: i32 = 13;
pub const GSEL_F8E5M2: i32 = 14;
pub const GSEL_FORWARD: i32 = 2;
pub const GSEL_FORWARD_BACKWARD: i32 = 6;
pub const GSEL_I16: i32 = 3;
pub const GSEL_I32: i32 = 5;
pub const GSEL_I64: i32 = 7;
pub const GSEL_I8: i32 = 1;
pub const GSEL_INIT_CALLBACK: i32 = 3;
pub const GSEL_INIT_NORMAL: i32 = 2;
pub const GSEL_INIT_ONES: i32 = 1;
pub const GSEL_INIT_ZEROS: i32 = 0;
pub const GSEL_INPUT: i32 = 1;
pub const GSEL_INSTR_ALLGATHER: i32 = 14;
pub const GSEL_INSTR_ALLREDUCE: i32 = 9;
pub const GSEL_INSTR_ALLREDUCE_PARTIAL: i32 = 23;
pub const GSEL_INSTR_ALLREDUCE_TIED: i32 = 22;
pub const GSEL_INSTR_BROADCAST: i32 = 8;
pub const GSEL_INSTR_GATHER: i32 = 20;
pub const GSEL_INSTR_GRADIENT: u32 = 1;
pub const GSEL_INSTR_LOSS_ALLREDUCE: i32 = 11;
pub const GSEL_INSTR_NORM: i32 = 12;
pub const GSEL_INSTR_OPTIMISTIC: u32 = 2;
pub const GSEL_INSTR_OVERFLOW: i32 = 21;
pub const GSEL_INSTR_POST_VALIDATE: i32 = 24;
pub const GSEL_INSTR_RECOMPUTE: i32 = 18;
pub const GSEL_INSTR_RECV: i32 = 7;
pub const GSEL_INSTR_REDUCE: i32 = 17;
pub const GSEL_INSTR_REDUCE_SCATTER: i32 = 16;
pub const GSEL_INSTR_RELEASE: i32 = 15;
pub const GSEL_INSTR_SCATTER: i32 = 19;
pub const GSEL_INSTR_SEND: i32 = 6;
pub const GSEL_INSTR_STEP: i32 = 13;
pub const GSEL_INSTR_WAIT: i32 = 10;
pub const GSEL_LAYER_ALWAYS_ACCUMULATES: u32 = 64;
pub const GSEL_LAYER_LOSS: u32 = 1;
pub const GSEL_LAYER_NO_CUT_AFTER: u32 = 2;
pub const GSEL_LAYER_OWN_PARAMS: u32 = 8;
pub const GSEL_LAYER_POSITIONWISE: u32 = 16;
pub const GSEL_LAYER_RECOMPUTABLE: u32 = 4;
pub const GSEL_LAYER_SAVES_WHOLE: u32 = 32;
pub const GSEL_LAYER_WEIGHT_READS_PARAMS: u32 = 128;
pub const GSEL_LOG_DEBUG: i32 = 4;
pub const GSEL_LOG_ERROR: i32 = 1;
pub const GSEL_LOG_INFO: i32 = 3;
pub const GSEL_LOG_WARN: i32 = 2;
pub const GSEL_LOW_RANK_FINISH: i32 = 4;
pub const GSEL_LOW_RANK_LEFT: i32 = 2;
pub const GSEL_LOW_RANK_RIGHT: i32 = 3;
pub const GSEL_LOW_RANK_START: i32 = 1;
pub const GSEL_MAX: i32 = 4;
pub const GSEL_MAX_AXES: usize = 8;
pub const GSEL_MAX_DIMS: usize = 6;
pub const GSEL_MEMORY_DEVICE: i32 = 1;
pub const GSEL_MEMORY_HOST: i32 = 3;
pub const GSEL_MEMORY_PINNED: i32 = 2;
pub const GSEL_MIN: i32 = 3;
pub const GSEL_NEEDS_ELEMENTS: i32 = 0;
pub const GSEL_NEEDS_PARAM_NORM: i32 = 1;
pub const GSEL_NEEDS_WHOLE_PARAM: i32 = 2;
pub const GSEL_NO_SAMPLES: i32 = 1;
pub const GSEL_NUL: usize = usize::MAX;
pub const GSEL_OPTIMIZER_ADAM: i32 = 4;
pub const GSEL_OPTIMIZER_ADAMW: i32 = 3;
pub const GSEL_OPTIMIZER_ADAMW_8BIT: i32 = 6;
pub const GSEL_OPTIMIZER_LION: i32 = 5;
pub const GSEL_OPTIMIZER_SGD: i32 = 1;
pub const GSEL_OPTIMIZER_SIGN_SGD: i32 = 2;
pub const GSEL_OPTION_BOOLEAN: i32 = 3;
pub const GSEL_OPTION_INTEGER: i32 = 1;
pub const GSEL_OPTION_NUMBER: i32 = 2;
pub const GSEL_OPTION_TEXT: i32 = 4;
pub const GSEL_OP_USER: i32 = 4096;
pub const GSEL_ORDER_RANKS: i32 = 0;
pub const GSEL_ORDER_TREE: i32 = 1;
pub const GSEL_PARAM_FROZEN: u32 = 2;
pub const GSEL_PARAM_NO_CLIP: u32 = 4;
pub const GSEL_PARAM_NO_DECAY: u32 = 1;
pub const GSEL_PARAM_REPLICATE_IF_FEW: u32 = 8;
pub const GSEL_PHASE_HOME: u32 = 2;
pub const GSEL_PHASE_RING_SHIFT: u32 = 1;
pub const GSEL_PLACEMENT_PARTIAL: i32 = 2;
pub const GSEL_PLACEMENT_REPLICATE: i32 = 0;
pub const GSEL_PLACEMENT_SHARD: i32 = 1;
pub const GSEL_PLAN_OFFLOAD_PARAMS: u32 = 8;
pub const GSEL_PLAN_OFFLOAD_STATE: u32 = 4;
pub const GSEL_PLAN_RECOMPUTE: u32 = 2;
pub const GSEL_PLAN_SEQUENCE_PARALLEL: u32 = 1;
pub const GSEL_PLUGIN_ABI_MAJOR: i32 = 1;
pub const GSEL_PLUGIN_ABI_MINOR: i32 = 11;
pub const GSEL_PLUGIN_DEVICE: i32 = 3;
pub const GSEL_PLUGIN_STRATEGY: i32 = 1;
pub const GSEL_PLUGIN_TRANSPORT: i32 = 5;
pub const GSEL_PROD: i32 = 2;
pub const GSEL_REBIND_FROM_CHECKPOINT: i32 = 2;
pub const GSEL_REBIND_FROM_RANKS: i32 = 1;
pub const GSEL_REDUCE_SOURCES: i32 = 64;
pub const GSEL_RESOLVE_NO_ENV: u32 = 1;
pub const GSEL_RESOLVE_PER_RANK: u32 = 2;
pub const GSEL_SAVE_DONE: i32 = 2;
pub const GSEL_SAVE_FAILED: i32 = 3;
pub const GSEL_SAVE_NONE: i32 = 0;
pub const GSEL_SAVE_UNDER_WAY: i32 = 1;
pub const GSEL_SCALED_SUM: i32 = 9;
pub const GSEL_SHARD_DIM: i32 = 1;
pub const GSEL_SHARD_NONE: i32 = 0;
pub const GSEL_STATE_OF_RANK: i32 = 1;
pub const GSEL_STATE_SHARED: i32 = 0;
pub const GSEL_STEP_FACTOR_BYTES: i32 = 64;
pub const GSEL_STREAM_HIGH_PRIORITY: u32 = 1;
pub const GSEL_SUGGESTION_OFFLOADS: u32 = 1;
pub const GSEL_SUM: i32 = 1;
pub const GSEL_TIMELINE_CHROME: i32 = 2;
pub const GSEL_TIMELINE_SVG: i32 = 1;
pub const GSEL_TRANSPORT_BITWISE: u32 = 1;
pub const GSEL_TRANSPORT_CAPTURE: u32 = 16;
pub const GSEL_TRANSPORT_HOST_SYNCHRONOUS: u32 = 4;
pub const GSEL_TRANSPORT_IN_PLACE: u32 = 64;
pub const GSEL_TRANSPORT_LAUNCH_ORDER: u32 = 256;
pub const GSEL_TRANSPORT_ONE_ORDER: u32 = 8;
pub const GSEL_TRANSPORT_OWN_DEVICE: u32 = 2;
pub const GSEL_TRANSPORT_PROMPT: u32 = 128;
pub const GSEL_TRANSPORT_SHARED_DEVICE: u32 = 512;
pub const GSEL_TRANSPORT_TAGS: u32 = 32;
pub const GSEL_U16: i32 = 4;
pub const GSEL_U32: i32 = 6;
pub const GSEL_U64: i32 = 8;
pub const GSEL_U8: i32 = 2;
pub const GSEL_UNREAD_SAVED: u64 = 1 << 63;
pub const GSEL_VALUE_INPUT: u32 = 1;
pub const GSEL_VALUE_NOT_DIFFERENTIABLE: u32 = 2;
pub const GSEL_VALUE_REPLICATE_IF_FEW: u32 = 8;
pub const GSEL_VALUE_SCALAR: u32 = 4;
pub const GSEL_VERSION_MAJOR: i32 = 0;
pub const GSEL_VERSION_MINOR: i32 = 1;
pub const GSEL_VERSION_NUMBER: i32 = GSEL_VERSION_MAJOR * 10000 + GSEL_VERSION_MINOR * 100 + GSEL_VERSION_PATCH;
pub const GSEL_VERSION_PATCH: i32 = 0;
pub const GSEL_WORK_DONE: i32 = 0;
