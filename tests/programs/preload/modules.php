<?php
// Whatever modules this PHP has, all loaded with RTLD_DEEPBIND, at work. Prints the same at each run.
$rounds = (int)$argv[1];
$sums = [];
function add(string $name, string $text): void {
    global $sums;
    $sums[$name] = hash('crc32b', ($sums[$name] ?? '') . $text);
}
$state = 1;
function rnd(int $below): int {
    global $state;
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    return ($state >> 8) % $below;
}
// Held all the time, and changed.
$held = [];
for ($round = 0; $round < $rounds; $round++) {
    $words = [];
    for ($i = 0; $i < 500; $i++) {
        $words[] = 'wörd' . rnd(10000) . str_repeat(chr(97 + rnd(26)), rnd(40));
    }
    $held[rnd(3000)] = $words;
    $text = implode(' ', $words);
    add('json', json_encode(json_decode(json_encode(['w' => $words, 'n' => $round]), true)));
    if (function_exists('mb_strtoupper')) add('mbstring', mb_strtoupper($text) . mb_substr($text, 5, 100));
    if (function_exists('iconv')) add('iconv', iconv('ISO-8859-1', 'UTF-8', iconv('UTF-8', 'ISO-8859-1//TRANSLIT', $text)));
    if (function_exists('gzdeflate')) add('zlib', gzinflate(gzdeflate($text, 6)));
    if (function_exists('ctype_alpha')) add('ctype', implode(',', array_filter($words, 'ctype_alnum')));
    if (function_exists('token_get_all')) add('tokenizer', (string)count(token_get_all("<?php \$x = '$round'; foo(\$x);")));
    if (function_exists('sodium_crypto_generichash')) add('sodium', bin2hex(sodium_crypto_generichash($text)));
    if (function_exists('openssl_encrypt')) {
        $sealed = openssl_encrypt($text, 'aes-128-cbc', 'key of 16 bytes.', 0, str_repeat('i', 16));
        add('openssl', openssl_decrypt($sealed, 'aes-128-cbc', 'key of 16 bytes.', 0, str_repeat('i', 16)));
    }
    if (class_exists('Collator')) add('intl', (string)(new Collator('de_DE'))->compare($words[0], $words[1]));
    if (class_exists('SimpleXMLElement')) add('xml', (new SimpleXMLElement('<a><b>' . $text . '</b></a>'))->asXML());
    if (class_exists('DOMDocument')) {
        $document = new DOMDocument();
        $document->loadXML('<a><b c="1">' . $text . '</b></a>');
        add('dom', $document->saveXML());
    }
    if (class_exists('PDO') && in_array('sqlite', PDO::getAvailableDrivers())) {
        $db = new PDO('sqlite::memory:');
        $db->exec('create table t (w text)');
        $insert = $db->prepare('insert into t values (?)');
        foreach (array_slice($words, 0, 50) as $word) $insert->execute([$word]);
        add('sqlite', $db->query('select group_concat(w) from (select w from t order by w)')->fetchColumn());
    }
    if ($round % 20 == 0) {
        if (class_exists('finfo')) add('fileinfo', (new finfo(FILEINFO_MIME))->buffer($text));
        if (class_exists('PharData')) {
            $file = sys_get_temp_dir() . '/deepbind-' . getmypid() . '.tar';
            $phar = new PharData($file);
            $phar['words'] = $text;
            unset($phar);
            add('phar', (new PharData($file))['words']->getContent());
            PharData::unlinkArchive($file);
        }
        if (class_exists('FFI') && in_array(ini_get('ffi.enable'), ['1', 'preload'])) {
            // Its names are looked up in the C library itself.
            $c = FFI::cdef('char *strdup(const char *text); void free(void *at); size_t strlen(const char *text);', 'libc.so.6');
            $copy = $c->strdup($text);
            add('ffi', FFI::string($copy));
            $c->free($copy);
        }
    }
}
ksort($sums);
foreach ($sums as $name => $sum) echo "$name $sum\n";
echo 'held ', hash('crc32b', serialize($held)), "\n";
