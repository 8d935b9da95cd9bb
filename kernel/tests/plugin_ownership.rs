//! Ownership across Polars' plugin interface: this test plays Polars, by its own structs.
//!
//! Every array that is handed over is released exactly once, whether the expression succeeds, refuses or cannot read
//! its input; what the plugin hands back is freed; and repeated calls leave no memory behind.
#![cfg(feature = "plugin")]

mod counting;

use std::ffi::{c_char, c_void, CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use _kernel as _; // links the exported functions
use safetensors::tensor::{serialize, Dtype, TensorView};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::counting::LIVE;

/// Arrays made and arrays released.
static MADE: AtomicUsize = AtomicUsize::new(0);
static RELEASED: AtomicUsize = AtomicUsize::new(0);

#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct SeriesExport {
    field: *mut ArrowSchema,
    arrays: *mut *mut ArrowArray,
    len: usize,
    release: Option<unsafe extern "C" fn(*mut SeriesExport)>,
    private_data: *mut c_void,
}

type Expression = unsafe extern "C" fn(*mut SeriesExport, usize, *const u8, usize, *mut SeriesExport, *const u64);

extern "C" {
    fn _polars_plugin_get_version() -> u32;
    fn _polars_plugin_get_last_error_message() -> *const c_char;
    fn _polars_plugin_dptext_table(
        inputs: *mut SeriesExport,
        len: usize,
        kwargs: *const u8,
        kwargs_len: usize,
        output: *mut SeriesExport,
        context: *const u64,
    );
    fn _polars_plugin_dptext_released(
        inputs: *mut SeriesExport,
        len: usize,
        kwargs: *const u8,
        kwargs_len: usize,
        output: *mut SeriesExport,
        context: *const u64,
    );
    fn _polars_plugin_field_dptext_released(
        fields: *const ArrowSchema,
        len: usize,
        output: *mut ArrowSchema,
        kwargs: *const u8,
        kwargs_len: usize,
    );
}

/// The buffers of a column of strings with 64-bit offsets.
struct Strings {
    offsets: Vec<i64>,
    values: Vec<u8>,
    buffers: [*const c_void; 3],
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    RELEASED.fetch_add(1, SeqCst);
    let array = unsafe { &mut *array };
    drop(unsafe { Box::from_raw(array.private_data.cast::<Strings>()) });
    array.release = None;
}

/// A column of strings from row `offset` on, as a slice of a longer array comes.
fn strings(texts: &[&str], offset: usize) -> ArrowArray {
    MADE.fetch_add(1, SeqCst);
    let mut held = Box::new(Strings { offsets: vec![0], values: Vec::new(), buffers: [null(); 3] });
    for text in texts {
        held.values.extend_from_slice(text.as_bytes());
        held.offsets.push(held.values.len() as i64);
    }
    held.buffers = [null(), held.offsets.as_ptr().cast(), held.values.as_ptr().cast()];
    let held = Box::into_raw(held);
    ArrowArray {
        length: (texts.len() - offset) as i64,
        null_count: 0,
        offset: offset as i64,
        n_buffers: 3,
        n_children: 0,
        buffers: unsafe { (&raw mut (*held).buffers).cast() },
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: held.cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    let schema = unsafe { &mut *schema };
    drop(unsafe { CString::from_raw(schema.format.cast_mut()) });
    drop(unsafe { CString::from_raw(schema.name.cast_mut()) });
    schema.release = None;
}

fn schema(format: &str, name: &str) -> ArrowSchema {
    ArrowSchema {
        format: CString::new(format).unwrap().into_raw(),
        name: CString::new(name).unwrap().into_raw(),
        metadata: null(),
        flags: 2,
        n_children: 0,
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: null_mut(),
    }
}

fn empty_schema() -> ArrowSchema {
    ArrowSchema {
        format: null(),
        name: null(),
        metadata: null(),
        flags: 0,
        n_children: 0,
        children: null_mut(),
        dictionary: null_mut(),
        release: None,
        private_data: null_mut(),
    }
}

/// The data behind an exported series: as in Polars, releasing it frees the boxes and leaves the arrays in place.
struct Private {
    schema: ArrowSchema,
    arrays: Vec<*mut ArrowArray>,
}

unsafe extern "C" fn release_series(series: *mut SeriesExport) {
    let series = unsafe { &mut *series };
    let mut private = unsafe { Box::from_raw(series.private_data.cast::<Private>()) };
    for &array in &private.arrays {
        drop(unsafe { Box::from_raw(array.cast::<std::mem::ManuallyDrop<ArrowArray>>()) });
    }
    unsafe { release_schema(&mut private.schema) };
    series.release = None;
}

fn series(format: &str, name: &str, chunks: Vec<ArrowArray>) -> SeriesExport {
    let arrays = chunks.into_iter().map(|chunk| Box::into_raw(Box::new(chunk))).collect();
    let private = Box::into_raw(Box::new(Private { schema: schema(format, name), arrays }));
    unsafe {
        SeriesExport {
            field: &raw mut (*private).schema,
            arrays: (*private).arrays.as_mut_ptr(),
            len: (*private).arrays.len(),
            release: Some(release_series),
            private_data: private.cast(),
        }
    }
}

/// Calls an expression and, as Polars does, forgets the inputs, takes every array of the output and releases both.
///
/// Returns the rows of the output's arrays; the message if it has none.
fn call(expression: Expression, mut inputs: Vec<SeriesExport>, kwargs: &[u8]) -> Result<Vec<i64>, String> {
    let mut output =
        SeriesExport { field: null_mut(), arrays: null_mut(), len: 0, release: None, private_data: null_mut() };
    unsafe {
        expression(inputs.as_mut_ptr(), inputs.len(), kwargs.as_ptr(), kwargs.len(), &mut output, &0);
        if output.private_data.is_null() {
            return Err(CStr::from_ptr(_polars_plugin_get_last_error_message()).to_str().unwrap().to_owned());
        }
        let mut rows = Vec::new();
        for &array in std::slice::from_raw_parts(output.arrays, output.len) {
            let mut array = array.read();
            rows.push(array.length);
            array.release.unwrap()(&mut array);
        }
        output.release.unwrap()(&mut output);
        Ok(rows)
    }
}

fn texts() -> SeriesExport {
    series(
        "U",
        "review",
        vec![strings(&["alpha, beta!", "unknown", ""], 0), strings(&["skipped", "gamma"], 1), strings(&[], 0)],
    )
}

fn ids() -> SeriesExport {
    series("U", "id", vec![strings(&["r1", "r2", "r3", "r4"], 0)])
}

/// The arguments of `dptext_table`, pickled as Python pickles them.
#[derive(Serialize, Clone)]
struct Arguments {
    table_path: String,
    table_sha256: String,
    key_reference: String,
    dataset: String,
    column: String,
    release: String,
    cfg: String,
    input_policy: String,
    nonce: String,
    unit_micro: u64,
    base_micro: u64,
    delta: f64,
    spend: bool,
}

impl Arguments {
    fn pickled(&self) -> Vec<u8> {
        serde_pickle::to_vec(self, serde_pickle::SerOptions::default()).unwrap()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Three words that draw from each other; a key file next to the table.
fn arguments(room: &std::path::Path) -> Arguments {
    let long = |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
    let short = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
    let tensors = [
        ("inputs", Dtype::U8, b"alpha\nbeta\ngamma".to_vec()),
        ("kept", Dtype::U8, Vec::new()),
        ("input_set", Dtype::U32, short(&[0; 3])),
        ("set_offsets", Dtype::U64, long(&[0, 3])),
        ("members", Dtype::U32, short(&[0, 1, 2])),
        ("row_offsets", Dtype::U64, long(&[0, 3, 6, 9])),
        ("cumulative", Dtype::U64, long(&[1, 3, 6].repeat(3))),
    ];
    let views = tensors.iter().map(|(name, dtype, bytes)| {
        let rows = bytes.len() / (dtype.bitsize() / 8);
        (*name, TensorView::new(*dtype, vec![rows], bytes).unwrap())
    });
    let file = serialize(views, None).unwrap();
    let (table, key) = (room.join("table.safetensors"), room.join("noise.key"));
    std::fs::write(&table, &file).unwrap();
    std::fs::write(&key, "07".repeat(32)).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    Arguments {
        table_path: table.to_str().unwrap().to_owned(),
        table_sha256: hex(&Sha256::digest(&file)),
        key_reference: format!("file:{}", key.to_str().unwrap()),
        dataset: "reviews".to_owned(),
        column: "review".to_owned(),
        release: "1".to_owned(),
        cfg: "00".repeat(32),
        input_policy:
            r#"{"punctuation":"drop","case":"lower","numbers":"uniform","oov":"uniform","null":"pass","n_max":100}"#
                .to_owned(),
        nonce: "0".to_owned(),
        unit_micro: 2_000_000,
        base_micro: 0,
        delta: 0.0,
        spend: false,
    }
}

/// Every way through the interface once.
fn everything(arguments: &Arguments) {
    let kwargs = arguments.pickled();
    let spend = Arguments { spend: true, ..arguments.clone() }.pickled();
    let misplaced = Arguments { table_path: "nowhere".to_owned(), ..arguments.clone() }.pickled();
    let table: Expression = _polars_plugin_dptext_table;

    assert_eq!(call(table, vec![texts(), ids()], &kwargs), Ok(vec![4]));
    assert_eq!(call(table, vec![texts(), ids()], &spend), Ok(vec![4]));
    assert_eq!(call(table, vec![series("U", "t", vec![]), series("U", "i", vec![])], &kwargs), Ok(vec![0]));
    assert_eq!(call(_polars_plugin_dptext_released, vec![texts(), ids()], &[]), Ok(vec![3, 1, 0]));

    for (inputs, kwargs, said) in [
        (vec![texts(), ids()], &b"no pickle"[..], "arguments"),
        (vec![texts(), ids()], &misplaced, ""),
        (vec![texts()], &kwargs, "a text and an id"),
        (vec![ids(), texts(), ids()], &kwargs, "a text and an id"),
        (vec![texts(), texts()], &kwargs, ""),
        (vec![series("Z", "bytes", vec![strings(&["a"], 0)]), ids()], &kwargs, "holds strings"),
        (vec![series("_unknown", "odd", vec![strings(&["a"], 0), strings(&["b"], 0)]), ids()], &kwargs, "cannot read"),
        (vec![texts(), series("U", "id", vec![strings(&["r1"], 0)])], &kwargs, "one id each"),
    ] {
        let message = call(table, inputs, kwargs).map(|rows| assert_eq!(rows, [4])).err();
        assert!(said.is_empty() || message.as_ref().is_some_and(|message| message.contains(said)), "{message:?}");
        assert!(!message.unwrap_or_default().contains("alpha"), "a message quotes a text");
    }
    assert!(call(_polars_plugin_dptext_released, vec![], &[]).is_err());

    let mut field = empty_schema();
    let fields = [schema("vu", "review"), schema("l", "id")];
    unsafe { _polars_plugin_field_dptext_released(fields.as_ptr(), 2, &mut field, null(), 0) };
    let name = unsafe { CStr::from_ptr(field.name) };
    assert_eq!(name.to_str(), Ok("review"));
    unsafe { field.release.unwrap()(&mut field) };
    for mut schema in fields {
        unsafe { release_schema(&mut schema) };
    }
}

#[test]
fn every_array_is_released_once_and_no_memory_stays() {
    assert_eq!(unsafe { _polars_plugin_get_version() }, 1);
    let room = std::env::temp_dir().join(format!("dptext-plugin-{}", std::process::id()));
    std::fs::create_dir_all(&room).unwrap();
    let arguments = arguments(&room);
    everything(&arguments); // fills what a process keeps: the table, the key
    let before = LIVE.load(SeqCst);
    for _ in 0..50 {
        everything(&arguments);
    }
    let grown = LIVE.load(SeqCst) - before;
    assert_eq!(MADE.load(SeqCst), RELEASED.load(SeqCst));
    assert!(grown.abs() < 4096, "50 rounds left {grown} bytes");
    std::fs::remove_dir_all(room).unwrap();
}
