//! Expressions by name.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use bdrun_array::source::{Hdf5, Npy, Zarr};
use bdrun_array::{Array, Binary, Complex, DType, Index, MOST_BLOCKS, Operand, Reduction, Scalar, Unary};
use serde_json::Value;

use super::{Raised, dtype, wrong};

pub(super) fn text(value: &Value) -> Result<&str, Raised> {
    value.as_str().ok_or_else(|| wrong("no text"))
}

/// A path: names are bytes, of each of which there is a letter.
pub(super) fn path(value: &Value) -> Result<PathBuf, Raised> {
    let bytes = text(value)?.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>();
    Ok(PathBuf::from(OsString::from_vec(bytes.map_err(|_| wrong("no path"))?)))
}

fn number(value: &Value) -> Result<isize, Raised> {
    value.as_i64().map(|number| number as isize).ok_or_else(|| wrong("no integer"))
}

fn real(value: &Value) -> Result<f64, Raised> {
    // JSON has no infinities.
    match value.as_str() {
        Some(text) => text.parse().map_err(|_| wrong("no number")),
        None => value.as_f64().ok_or_else(|| wrong("no number")),
    }
}

fn numbers(value: &Value) -> Result<Vec<isize>, Raised> {
    value.as_array().ok_or_else(|| wrong("no list"))?.iter().map(number).collect()
}

fn maybe<T>(value: &Value, of: impl Fn(&Value) -> Result<T, Raised>) -> Result<Option<T>, Raised> {
    if value.is_null() { Ok(None) } else { of(value).map(Some) }
}

pub(super) fn sizes(value: &Value) -> Result<Vec<usize>, Raised> {
    let of = |number: isize| {
        usize::try_from(number).map_err(|_| Raised("ValueError:negative dimensions are not allowed".into()))
    };
    numbers(value)?.into_iter().map(of).collect()
}

/// A number: `{"bool": true}`, `{"int": 1}`, `{"float": "1.5"}`, `{"complex": ["1.0", "0.0"]}`.
fn scalar(value: &Value) -> Result<Scalar, Raised> {
    let (kind, value) =
        value.as_object().and_then(|of| of.iter().next()).ok_or_else(|| wrong("no scalar"))?;
    Ok(match kind.as_str() {
        "bool" => Scalar::Bool(value.as_bool().ok_or_else(|| wrong("no truth value"))?),
        "int" => Scalar::Int(
            value
                .as_i64()
                .ok_or_else(|| Raised(format!("OverflowError:{value} does not fit into 64 bits")))?,
        ),
        "float" => Scalar::Float(real(value)?),
        _ => Scalar::Complex(Complex::new(real(&value[0])?, real(&value[1])?)),
    })
}

fn unary(name: &str) -> Option<Unary> {
    use Unary::{
        Absolute, Arctan, Ceil, Conj, Cos, Cosh, Exp, Expm1, Floor, Imag, Invert, IsFinite, IsInf, IsNan,
        Log, Log1p, Log10, LogicalNot, Negative, Real, Rint, Sign, Sin, Sinh, Sqrt, Square, Tan, Tanh, Trunc,
    };
    Some(match name {
        "negative" => Negative,
        "absolute" => Absolute,
        "sign" => Sign,
        "square" => Square,
        "sqrt" => Sqrt,
        "exp" => Exp,
        "expm1" => Expm1,
        "log" => Log,
        "log10" => Log10,
        "log1p" => Log1p,
        "sin" => Sin,
        "cos" => Cos,
        "tan" => Tan,
        "sinh" => Sinh,
        "cosh" => Cosh,
        "tanh" => Tanh,
        "arctan" => Arctan,
        "floor" => Floor,
        "ceil" => Ceil,
        "trunc" => Trunc,
        "rint" => Rint,
        "isnan" => IsNan,
        "isfinite" => IsFinite,
        "isinf" => IsInf,
        "logical_not" => LogicalNot,
        "invert" => Invert,
        "conjugate" => Conj,
        "real" => Real,
        "imag" => Imag,
        _ => return None,
    })
}

fn binary(name: &str) -> Option<(Binary, bool)> {
    use Binary::{
        Add, Arctan2, BitwiseAnd, BitwiseOr, BitwiseXor, Divide, Equal, FloorDivide, Less, LessEqual,
        LogicalAnd, LogicalOr, LogicalXor, Maximum, Minimum, Multiply, NotEqual, Power, Remainder, Subtract,
    };
    let function = match name {
        "add" => Add,
        "subtract" => Subtract,
        "multiply" => Multiply,
        "divide" => Divide,
        "floor_divide" => FloorDivide,
        "remainder" => Remainder,
        "power" => Power,
        "minimum" => Minimum,
        "maximum" => Maximum,
        "arctan2" => Arctan2,
        "less" | "greater" => Less,
        "less_equal" | "greater_equal" => LessEqual,
        "equal" => Equal,
        "not_equal" => NotEqual,
        "logical_and" => LogicalAnd,
        "logical_or" => LogicalOr,
        "logical_xor" => LogicalXor,
        "bitwise_and" => BitwiseAnd,
        "bitwise_or" => BitwiseOr,
        "bitwise_xor" => BitwiseXor,
        _ => return None,
    };
    Some((function, name.starts_with("greater")))
}

fn reduction(name: &str, ddof: u64) -> Option<Reduction> {
    Some(match name {
        "sum" => Reduction::Sum,
        "prod" => Reduction::Prod,
        "min" => Reduction::Min,
        "max" => Reduction::Max,
        "any" => Reduction::Any,
        "all" => Reduction::All,
        "mean" => Reduction::Mean,
        "var" => Reduction::Var(ddof),
        "std" => Reduction::Std(ddof),
        "argmin" => Reduction::ArgMin,
        "argmax" => Reduction::ArgMax,
        _ => return None,
    })
}

/// `null`: a new axis; `"..."`; a number; or `[start, stop, step]`, of which the first two may be null.
fn index(value: &Value) -> Result<Index, Raised> {
    Ok(match value {
        Value::Null => Index::New,
        Value::String(_) => Index::Ellipsis,
        Value::Array(of) if of.len() == 3 => {
            Index::Range(maybe(&of[0], number)?, maybe(&of[1], number)?, number(&of[2])?)
        }
        at => Index::At(number(at)?),
    })
}

/// Operands in order: a null is the next array, anything else a number.
fn operands(what: &Value, of: &[Array]) -> Result<Vec<Operand>, Raised> {
    let mut arrays = of.iter();
    let list = what["operands"].as_array().ok_or_else(|| wrong("no operands"))?;
    let one = |value: &Value| match value {
        Value::Null => Ok(Operand::Array(arrays.next().ok_or_else(|| wrong("too few arrays"))?.clone())),
        number => Ok(Operand::Scalar(scalar(number)?)),
    };
    list.iter().map(one).collect()
}

/// What the text says, of these.
pub(super) fn make(what: &Value, of: &[Array]) -> Result<Vec<Array>, Raised> {
    let name = text(&what["op"])?;
    let first = || of.first().ok_or_else(|| wrong("no array"));
    let second = || of.get(1).ok_or_else(|| wrong("no second array"));
    if let Some(function) = unary(name) {
        return Ok(vec![first()?.unary(function)?]);
    }
    if let Some((function, swapped)) = binary(name) {
        let mut operands = operands(what, of)?;
        let (y, x) = (operands.pop(), operands.pop());
        let (Some(x), Some(y)) = (x, y) else { return Err(wrong("two operands")) };
        let (x, y) = if swapped { (y, x) } else { (x, y) };
        return Ok(vec![Array::binary(function, x, y)?]);
    }
    let ddof = maybe(&what["ddof"], |ddof| ddof.as_u64().ok_or_else(|| wrong("no count")))?;
    if let Some(reduction) = reduction(name, ddof.unwrap_or(0)) {
        let axes = maybe(&what["axes"], numbers)?;
        let keep = what["keep"].as_bool().unwrap_or(false);
        return Ok(vec![first()?.reduce(reduction, axes.as_deref(), keep)?]);
    }
    let axis = || number(&what["axis"]);
    Ok(vec![match name {
        "npy" => {
            let source = Arc::new(Npy::open(&path(&what["path"])?)?);
            read(source, &what["block"])?
        }
        "raw" => {
            let (path, shape) = (path(&what["path"])?, sizes(&what["shape"])?);
            let offset = what["offset"].as_u64().ok_or_else(|| wrong("no offset"))?;
            let source = Npy::open_raw(&path, dtype(text(&what["dtype"])?)?, &shape, offset)?;
            read(Arc::new(source), &what["block"])?
        }
        "hdf5" => {
            let source = Hdf5::open(&path(&what["path"])?, text(&what["dataset"])?)?;
            read(Arc::new(source), &what["block"])?
        }
        "zarr" => read(Arc::new(Zarr::open(&path(&what["path"])?)?), &what["block"])?,
        "full" => {
            let (value, shape) = (scalar(&what["value"])?, sizes(&what["shape"])?);
            let dtype = dtype(text(&what["dtype"])?)?;
            if !bdrun_array::is_possible(&shape, dtype.size()) {
                return Err(Raised(format!("MemoryError:an array of shape {shape:?}")));
            }
            Array::full(&shape, value, dtype)
        }
        "astype" => first()?.astype(dtype(text(&what["dtype"])?)?),
        "where" => {
            let mut operands = operands(what, of.get(1..).ok_or_else(|| wrong("no condition"))?)?;
            let (Some(y), Some(x)) = (operands.pop(), operands.pop()) else {
                return Err(wrong("two operands"));
            };
            Array::select(first()?, x, y)?
        }
        "cumsum" => first()?.cumsum(axis()?)?,
        "cumprod" => first()?.cumprod(axis()?)?,
        "transpose" => first()?.transpose(maybe(&what["axes"], numbers)?.as_deref())?,
        "swapaxes" => first()?.swapaxes(axis()?, number(&what["other"])?)?,
        "moveaxis" => first()?.moveaxis(axis()?, number(&what["other"])?)?,
        "expand_dims" => first()?.expand_dims(axis()?)?,
        "squeeze" => first()?.squeeze(maybe(&what["axes"], numbers)?.as_deref())?,
        "reshape" => first()?.reshape(&numbers(&what["shape"])?)?,
        "concatenate" => Array::concatenate(of, axis()?)?,
        "stack" => Array::stack(of, axis()?)?,
        "index" => {
            let indices = what["index"].as_array().ok_or_else(|| wrong("no index"))?;
            first()?.index(&indices.iter().map(index).collect::<Result<Vec<_>, _>>()?)?
        }
        "tensordot" => first()?.tensordot(second()?, &numbers(&what["axes"])?, &numbers(&what["others"])?)?,
        "dot" => first()?.dot(second()?)?,
        "matmul" => first()?.matmul(second()?)?,
        "rechunk" => {
            let lengths = what["chunks"].as_array().ok_or_else(|| wrong("no chunks"))?;
            first()?.rechunk(lengths.iter().map(sizes).collect::<Result<_, _>>()?)?
        }
        "rechunk_regular" => first()?.rechunk_regular(&sizes(&what["chunk"])?)?,
        "svd" => return Ok(first()?.svd()?.into()),
        "histogram" => {
            let range = maybe(&what["range"], |range| Ok((real(&range[0])?, real(&range[1])?)))?;
            let bins = sizes(&what["bins"])?[0];
            return Ok(first()?.histogram(bins, range)?.into());
        }
        "quantiles" => {
            let of = what["q"].as_array().ok_or_else(|| wrong("no list"))?;
            first()?.quantiles(&of.iter().map(real).collect::<Result<Vec<_>, _>>()?)?
        }
        _ => return Err(wrong(&format!("there is no {name}"))),
    }])
}

fn read(source: Arc<dyn bdrun_array::source::Source>, block: &Value) -> Result<Array, Raised> {
    match maybe(block, |block| sizes(&serde_json::json!([block])))? {
        Some(bytes) => {
            let elements = |of: &[usize]| of.iter().fold(1, |all: usize, &length| all.saturating_mul(length));
            let each = (bytes[0] / source.dtype().size()).max(elements(&source.unit())).max(1);
            if elements(source.shape()) / each > MOST_BLOCKS {
                let wanted = bytes[0];
                return Err(Raised(format!("MemoryError:block={wanted}: there are 2^24 blocks at most")));
            }
            Ok(Array::from_source_in(source, bytes[0]))
        }
        None => Ok(Array::from_source(source)),
    }
}

/// For what is stored as it is cut: the largest length along each axis.
pub(super) fn chunk(array: &Array) -> Vec<usize> {
    let longest = |lengths: &Vec<usize>| lengths.iter().copied().max().unwrap_or(1).max(1);
    array.chunks().lengths().iter().map(longest).collect()
}

/// Bytes of an array.
pub(super) fn bytes(array: &Array) -> u64 {
    let of = |dtype: DType| dtype.size() as u64;
    array.len() as u64 * of(array.dtype())
}
