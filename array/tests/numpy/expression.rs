//! Random expressions, as arrays and as Python.

use bdrun_array::{
    Array, Binary, Block, Complex, DType, Error, Index, Operand, Reduction, Scalar, Truth, Unary,
};

use super::random::Random;

/// Arrays that expressions are made of.
pub struct Pool {
    pub blocks: Vec<Block>,
}

/// Shapes that often fit each other.
const SHAPES: &[&[usize]] = &[
    &[],
    &[1],
    &[4],
    &[5],
    &[0],
    &[3, 4],
    &[4, 3],
    &[4, 4],
    &[1, 4],
    &[3, 1],
    &[0, 4],
    &[2, 3, 4],
    &[1, 3, 1],
    &[2, 1, 4],
    &[4, 4, 3],
    &[7, 5],
    &[5, 7],
    &[1, 1],
    &[2, 0, 3],
];

fn block(dtype: DType, shape: &[usize], random: &mut Random) -> Block {
    let count = shape.iter().product();
    // Numbers that are exact, and a few that are none.
    let mut real = || match random.below(40) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => -0.0,
        _ => (random.below(41) as f64 - 20.0) / 4.0,
    };
    match dtype {
        DType::F64 => Block::from_slice(shape, &(0..count).map(|_| real()).collect::<Vec<f64>>()),
        DType::F32 => Block::from_slice(shape, &(0..count).map(|_| real() as f32).collect::<Vec<_>>()),
        DType::C64 => {
            let values: Vec<Complex> = (0..count).map(|_| Complex::new(real(), real())).collect();
            Block::from_slice(shape, &values)
        }
        DType::Bool => {
            let values: Vec<Truth> = (0..count).map(|_| random.one_in(2).into()).collect();
            Block::from_slice(shape, &values)
        }
        DType::I32 => {
            let values: Vec<i32> = (0..count).map(|_| random.below(21) as i32 - 10).collect();
            Block::from_slice(shape, &values)
        }
        DType::I64 => {
            let values: Vec<i64> = (0..count).map(|_| random.below(21) as i64 - 10).collect();
            Block::from_slice(shape, &values)
        }
    }
    .unwrap()
}

impl Pool {
    pub fn new(random: &mut Random) -> Self {
        let mut blocks = Vec::new();
        for shape in SHAPES {
            for dtype in DType::ALL {
                blocks.push(block(dtype, shape, random));
            }
        }
        Self { blocks }
    }
}

/// An expression here, or what is wrong with it, and in Python.
pub struct Expression {
    pub array: Result<Array, String>,
    /// The class of what is wrong; Some(None): it is not supported.
    pub kind: Option<Option<&'static str>>,
    pub text: String,
    /// Whether anything of it was rounded to 32 bits.
    pub single: bool,
}

/// What is made on the way.
struct Term {
    array: Result<Array, Error>,
    text: String,
    /// Whether it was rounded, so that what is near a step may be on either side of it.
    rough: bool,
}

impl Expression {
    pub fn random(pool: &Pool, random: &mut Random) -> Self {
        let depth = 1 + random.below(4);
        let mut generator = Generator { pool, random, single: false };
        let term = generator.term(depth);
        let single = generator.single;
        let kind = term.array.as_ref().err().map(super::kind);
        Self { array: term.array.map_err(|error| error.to_string()), kind, text: term.text, single }
    }
}

struct Generator<'a> {
    pool: &'a Pool,
    random: &'a mut Random,
    single: bool,
}

fn list(axes: &[isize]) -> String {
    match axes {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(isize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn scalar_text(value: Scalar) -> String {
    match value {
        Scalar::Bool(value) => if value { "True" } else { "False" }.into(),
        Scalar::Int(value) => value.to_string(),
        Scalar::Float(value) => format!("{value:?}"),
        Scalar::Complex(value) => format!("complex({:?}, {:?})", value.re, value.im),
    }
}

fn is_complex(operand: &Operand) -> bool {
    match operand {
        Operand::Array(array) => array.dtype() == DType::C64,
        Operand::Scalar(value) => value.dtype() == DType::C64,
    }
}

impl Generator<'_> {
    fn leaf(&mut self) -> Term {
        let at = self.random.below(self.pool.blocks.len());
        let array = Array::from_block(self.pool.blocks[at].clone());
        self.single |= array.dtype() == DType::F32;
        let chunk: Vec<usize> = array.shape().iter().map(|&length| self.random.below(length + 2)).collect();
        Term { array: array.rechunk_regular(&chunk), text: format!("s(x[{at}])"), rough: false }
    }

    /// One that stretches to another one's shape, most of the time.
    fn beside(&mut self, other: &Array, depth: usize) -> Term {
        let fits = |array: &Array| {
            let pairs = array.shape().iter().rev().zip(other.shape().iter().rev());
            pairs.clone().all(|(one, two)| one == two || *one == 1 || *two == 1)
        };
        for attempt in 0..30 {
            // Others are leaves: each of them would try as often.
            let term = if attempt == 0 && self.random.one_in(3) {
                self.term(depth.saturating_sub(1))
            } else {
                self.leaf()
            };
            if term.array.as_ref().is_ok_and(fits) || self.random.one_in(60) {
                return term;
            }
        }
        self.leaf()
    }

    fn axis(&mut self, dimensions: usize) -> isize {
        let reach = dimensions as isize + isize::from(self.random.one_in(40));
        if reach == 0 { 0 } else { self.random.below(2 * reach as usize) as isize - reach }
    }

    fn term(&mut self, depth: usize) -> Term {
        if depth == 0 {
            return self.leaf();
        }
        let of = self.term(depth - 1);
        let Ok(array) = of.array else { return of };
        let (text, rough) = (of.text, of.rough);
        // New chunks do not change anything.
        let array = if self.random.one_in(4) {
            let chunk: Vec<usize> =
                array.shape().iter().map(|&length| self.random.below(length + 2)).collect();
            array.rechunk_regular(&chunk).unwrap()
        } else {
            array
        };
        let (array, text, rough) = match self.random.below(15) {
            0..3 => self.unary(array, text, rough),
            3..6 => self.binary(array, text, rough, depth),
            6 => self.select(array, text, rough, depth),
            7 | 8 => self.reduce(array, text, rough),
            9 => self.axes(array, text, rough),
            10 | 11 => self.index(array, text, rough),
            12 => self.contract(array, text, rough, depth),
            13 => self.join(array, text, rough, depth),
            _ => self.scan(array, text, rough),
        };
        self.single |= array.as_ref().is_ok_and(|array| array.dtype() == DType::F32);
        Term { array, text: format!("s({text})"), rough }
    }

    fn unary(&mut self, array: Array, text: String, rough: bool) -> (Result<Array, Error>, String, bool) {
        use Unary::{
            Absolute, Arctan, Ceil, Conj, Cos, Cosh, Exp, Expm1, Floor, Imag, Invert, IsFinite, IsInf, IsNan,
            Log, Log1p, Log10, LogicalNot, Negative, Real, Rint, Sign, Sin, Sinh, Sqrt, Square, Tan, Tanh,
            Trunc,
        };
        if self.random.one_in(4) {
            let to = self.random.pick(&DType::ALL);
            let steps = rough && to < DType::F32 && array.dtype() >= DType::F32;
            if !steps {
                return (Ok(array.astype(to)), format!("np.asarray({text}).astype('{to}')"), rough);
            }
        }
        let steps = [
            (Sign, "sign"),
            (Floor, "floor"),
            (Ceil, "ceil"),
            (Trunc, "trunc"),
            (Rint, "rint"),
            (IsNan, "isnan"),
            (IsFinite, "isfinite"),
            (IsInf, "isinf"),
            (LogicalNot, "logical_not"),
            (Invert, "invert"),
        ];
        let smooth = [
            (Negative, "negative"),
            (Absolute, "absolute"),
            (Square, "square"),
            (Conj, "conjugate"),
            (Real, "real"),
            (Imag, "imag"),
        ];
        let inexact = [
            (Sqrt, "sqrt"),
            (Exp, "exp"),
            (Expm1, "expm1"),
            (Log, "log"),
            (Log10, "log10"),
            (Log1p, "log1p"),
            (Sin, "sin"),
            (Cos, "cos"),
            (Tan, "tan"),
            (Sinh, "sinh"),
            (Cosh, "cosh"),
            (Tanh, "tanh"),
            (Arctan, "arctan"),
        ];
        let (function, name, rough) = match self.random.below(3) {
            0 if !rough => {
                let (function, name) = self.random.pick(&steps);
                (function, name, false)
            }
            1 => {
                let (function, name) = self.random.pick(&inexact);
                (function, name, true)
            }
            _ => {
                let (function, name) = self.random.pick(&smooth);
                (function, name, rough)
            }
        };
        (array.unary(function), format!("np.{name}({text})"), rough)
    }

    fn binary(
        &mut self,
        array: Array,
        text: String,
        rough: bool,
        depth: usize,
    ) -> (Result<Array, Error>, String, bool) {
        use Binary::{
            Add, Arctan2, BitwiseAnd, BitwiseOr, BitwiseXor, Divide, Equal, FloorDivide, Less, LessEqual,
            LogicalAnd, LogicalOr, LogicalXor, Maximum, Minimum, Multiply, NotEqual, Power, Remainder,
            Subtract,
        };
        let smooth = [
            (Add, "add"),
            (Subtract, "subtract"),
            (Multiply, "multiply"),
            (Minimum, "minimum"),
            (Maximum, "maximum"),
        ];
        let inexact = [(Power, "power")];
        // Whether what is divided by is 0 or −0 is a step too.
        let steps = [
            (Divide, "divide"),
            (Divide, "divide"),
            (Divide, "divide"),
            (Arctan2, "arctan2"),
            (FloorDivide, "floor_divide"),
            (Remainder, "remainder"),
            (Less, "less"),
            (LessEqual, "less_equal"),
            (Equal, "equal"),
            (NotEqual, "not_equal"),
            (LogicalAnd, "logical_and"),
            (LogicalOr, "logical_or"),
            (LogicalXor, "logical_xor"),
            (BitwiseAnd, "bitwise_and"),
            (BitwiseOr, "bitwise_or"),
            (BitwiseXor, "bitwise_xor"),
        ];
        let scalar = self.random.one_in(4).then(|| match self.random.below(8) {
            0 => Scalar::Bool(true),
            1 => Scalar::Complex(Complex::new(0.5, -1.0)),
            2 | 3 => Scalar::Float((self.random.below(9) as f64 - 4.0) / 2.0),
            4 if self.random.one_in(6) => Scalar::Int(1 << 40),
            _ => Scalar::Int(self.random.below(9) as i64 - 3),
        });
        let is_first = self.random.one_in(2);
        let (operand, other, rough) = match scalar {
            Some(value) => (Operand::Scalar(value), scalar_text(value), rough),
            None => {
                let term = self.beside(&array, depth);
                let Ok(other) = term.array else {
                    // Python evaluates it before the call.
                    return (term.array, term.text, rough);
                };
                (other.into(), term.text, rough || term.rough)
            }
        };
        let (function, name, rough) = match self.random.below(3) {
            0 if !rough => {
                let (function, name) = self.random.pick(&steps);
                (function, name, matches!(function, Divide | Arctan2))
            }
            // What is near the negative numbers has powers on either side.
            1 if !(rough && (array.dtype() == DType::C64 || is_complex(&operand))) => {
                let (function, name) = self.random.pick(&inexact);
                (function, name, true)
            }
            _ => {
                let (function, name) = self.random.pick(&smooth);
                (function, name, rough)
            }
        };
        if is_first {
            (Array::binary(function, array, operand), format!("np.{name}({text}, {other})"), rough)
        } else {
            (Array::binary(function, operand, array), format!("np.{name}({other}, {text})"), rough)
        }
    }

    fn select(
        &mut self,
        array: Array,
        text: String,
        rough: bool,
        depth: usize,
    ) -> (Result<Array, Error>, String, bool) {
        let condition = loop {
            let term = self.beside(&array, 0);
            if term.array.is_ok() {
                break term;
            }
        };
        let other = self.beside(&array, depth);
        let Ok(y) = other.array else { return (other.array, other.text, rough) };
        let result = condition.array.and_then(|condition| Array::select(&condition, array, y));
        (result, format!("np.where({}, {text}, {})", condition.text, other.text), rough || other.rough)
    }

    fn reduce(&mut self, array: Array, text: String, rough: bool) -> (Result<Array, Error>, String, bool) {
        use Reduction::{All, Any, ArgMax, ArgMin, Max, Mean, Min, Prod, Std, Sum, Var};
        let (reduction, call) = loop {
            let ddof = self.random.below(3) as u64;
            let pick = self.random.pick(&[
                (Sum, "sum"),
                (Prod, "prod"),
                (Min, "min"),
                (Max, "max"),
                (Any, "any"),
                (All, "all"),
                (Mean, "mean"),
                (Var(ddof), "var"),
                (Std(ddof), "std"),
                (ArgMin, "argmin"),
                (ArgMax, "argmax"),
            ]);
            if !(rough && matches!(pick.0, Any | All | ArgMin | ArgMax)) {
                break pick;
            }
        };
        let dimensions = array.dimensions();
        let is_index = matches!(reduction, ArgMin | ArgMax);
        let axes: Option<Vec<isize>> = match self.random.below(4) {
            0 => None,
            1 if !is_index && dimensions > 1 => {
                let mut axes: Vec<isize> = (0..dimensions as isize).collect();
                axes.remove(self.random.below(dimensions));
                Some(axes)
            }
            _ => Some(vec![self.axis(dimensions)]),
        };
        let keep = self.random.one_in(3);
        let named = match &axes {
            None => "None".into(),
            Some(axes) if axes.len() == 1 => axes[0].to_string(),
            Some(axes) => list(axes),
        };
        let ddof = match reduction {
            Var(ddof) | Std(ddof) => format!(", ddof={ddof}"),
            _ => String::new(),
        };
        let text = format!(
            "np.{call}({text}, axis={named}, keepdims={}{ddof})",
            if keep { "True" } else { "False" }
        );
        let is_rounded = matches!(reduction, Mean | Var(_) | Std(_) | Prod | Sum);
        (array.reduce(reduction, axes.as_deref(), keep), text, rough || is_rounded)
    }

    /// A shape of so many elements, most of the time.
    fn shape(&mut self, elements: usize) -> Vec<isize> {
        let (mut shape, mut left) = (Vec::new(), elements);
        while left > 1 && shape.len() < 4 {
            let factors: Vec<usize> = (1..=left).filter(|factor| left % factor == 0).collect();
            let factor = self.random.pick(&factors);
            shape.push(factor as isize);
            left /= factor;
        }
        if left != 1 || self.random.one_in(3) {
            shape.push(left as isize);
        }
        if self.random.one_in(4) && !shape.is_empty() {
            let at = self.random.below(shape.len());
            shape[at] = -1;
        }
        if self.random.one_in(20) {
            shape.push(self.random.pick(&[2, 0, -1, -2]));
        }
        shape
    }

    fn axes(&mut self, array: Array, text: String, rough: bool) -> (Result<Array, Error>, String, bool) {
        let dimensions = array.dimensions();
        let (one, two) = (self.axis(dimensions), self.axis(dimensions));
        let (array, text) = match self.random.below(8) {
            5 | 6 => {
                let shape = self.shape(array.len());
                let text = format!("np.reshape({text}, {})", list(&shape));
                (array.reshape(&shape), text)
            }
            0 => {
                let mut order: Vec<isize> = (0..dimensions as isize).collect();
                for at in (1..order.len()).rev() {
                    order.swap(at, self.random.below(at + 1));
                }
                if self.random.one_in(30) {
                    order.push(0);
                }
                let text = format!("np.transpose({text}, {})", list(&order));
                (array.transpose(Some(&order)), text)
            }
            1 => (array.transpose(None), format!("np.transpose({text})")),
            2 => (array.swapaxes(one, two), format!("np.swapaxes({text}, {one}, {two})")),
            3 => (array.moveaxis(one, two), format!("np.moveaxis({text}, {one}, {two})")),
            4 => {
                let at = self.axis(dimensions + 1);
                (array.expand_dims(at), format!("np.expand_dims({text}, {at})"))
            }
            _ if self.random.one_in(4) => (array.squeeze(Some(&[one])), format!("np.squeeze({text}, {one})")),
            _ => (array.squeeze(None), format!("np.squeeze({text})")),
        };
        (array, text, rough)
    }

    fn index(&mut self, array: Array, text: String, rough: bool) -> (Result<Array, Error>, String, bool) {
        let (mut indices, mut texts) = (Vec::new(), Vec::new());
        let (mut axis, mut ellipsis) = (0, false);
        let reach = array.dimensions() + usize::from(self.random.one_in(40));
        while axis < reach {
            match self.random.below(8) {
                0 => {
                    indices.push(Index::New);
                    texts.push("None".to_owned());
                    continue;
                }
                1 if !ellipsis => {
                    ellipsis = true;
                    indices.push(Index::Ellipsis);
                    texts.push("...".to_owned());
                    // It stands for some of them.
                    axis += self.random.below(reach - axis + 1);
                    continue;
                }
                2 | 3 => {
                    let length = array.shape().get(axis).copied().unwrap_or(1);
                    let at = self.axis(length);
                    indices.push(Index::At(at));
                    texts.push(at.to_string());
                }
                _ => {
                    let mut bound = || (!self.random.one_in(3)).then(|| self.random.below(13) as isize - 6);
                    let (start, stop) = (bound(), bound());
                    let step =
                        if self.random.one_in(60) { 0 } else { self.random.pick(&[1, 1, 1, 2, 3, -1, -2]) };
                    let name = |bound: Option<isize>| bound.map_or(String::new(), |bound| bound.to_string());
                    indices.push(Index::Range(start, stop, step));
                    texts.push(format!("{}:{}:{step}", name(start), name(stop)));
                }
            }
            axis += 1;
            if self.random.one_in(4) {
                break;
            }
        }
        let inner = if texts.is_empty() { "()".into() } else { format!("{},", texts.join(", ")) };
        (array.index(&indices), format!("np.asarray({text})[{inner}]"), rough)
    }

    fn contract(
        &mut self,
        array: Array,
        text: String,
        rough: bool,
        depth: usize,
    ) -> (Result<Array, Error>, String, bool) {
        let how = self.random.below(3);
        for attempt in 0.. {
            let term = if attempt == 0 && self.random.one_in(4) { self.term(depth - 1) } else { self.leaf() };
            let Ok(other) = term.array else { continue };
            let is_last = attempt == 60;
            let rough = rough || term.rough || array.dtype() > DType::I64 || other.dtype() > DType::I64;
            let (result, text) = match how {
                0 => (array.dot(&other), format!("np.dot(f({text}), f({}))", term.text)),
                1 => (array.matmul(&other), format!("np.matmul(f({text}), f({}))", term.text)),
                _ => {
                    let (mut own, mut others) = (Vec::new(), Vec::new());
                    for (axis, length) in array.shape().iter().enumerate() {
                        let free = |at: &usize| !others.contains(&(*at as isize));
                        let found =
                            (0..other.dimensions()).filter(free).find(|&at| other.shape()[at] == *length);
                        if let Some(found) = found.filter(|_| self.random.one_in(2)) {
                            own.push(axis as isize);
                            others.push(found as isize);
                        }
                    }
                    let text = format!(
                        "np.tensordot(f({text}), f({}), ({}, {}))",
                        term.text,
                        list(&own).replace("()", "[]"),
                        list(&others).replace("()", "[]")
                    );
                    (array.tensordot(&other, &own, &others), text)
                }
            };
            let is_small = result.as_ref().is_ok_and(|result| result.len() < 2000);
            if is_small || (is_last && result.is_err()) {
                return (result, text, rough);
            }
            if is_last {
                break;
            }
        }
        (Ok(array), text, rough)
    }

    fn join(
        &mut self,
        array: Array,
        text: String,
        rough: bool,
        depth: usize,
    ) -> (Result<Array, Error>, String, bool) {
        let is_stack = self.random.one_in(2);
        let (mut arrays, mut texts, mut rough) = (vec![array], vec![text], rough);
        for _ in 0..self.random.below(3) {
            let mut is_first = true;
            let term = loop {
                let is_term = std::mem::take(&mut is_first) && self.random.one_in(3);
                let term = if is_term { self.term(depth - 1) } else { self.leaf() };
                let fits = |other: &Array| other.shape() == arrays[0].shape();
                if term.array.as_ref().is_ok_and(fits) || self.random.one_in(200) {
                    break term;
                }
            };
            let Ok(other) = term.array else { return (term.array, term.text, rough) };
            rough |= term.rough;
            arrays.push(other);
            texts.push(term.text);
        }
        let at = self.axis(arrays[0].dimensions() + usize::from(is_stack));
        let all = texts.join(", ");
        if is_stack {
            (Array::stack(&arrays, at), format!("np.stack([{all}], axis={at})"), rough)
        } else {
            (Array::concatenate(&arrays, at), format!("np.concatenate([{all}], axis={at})"), rough)
        }
    }

    fn scan(&mut self, array: Array, text: String, rough: bool) -> (Result<Array, Error>, String, bool) {
        let at = self.axis(array.dimensions());
        let rough = rough || array.dtype() > DType::I64;
        if self.random.one_in(2) {
            (array.cumsum(at), format!("np.cumsum({text}, axis={at})"), rough)
        } else {
            (array.cumprod(at), format!("np.cumprod({text}, axis={at})"), rough)
        }
    }
}
