<?php
// A small PHP site: form, upload, redirect, cookie, and what PHP makes of the request behind the proxy.

switch (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
    case '/server':
        foreach (['HTTP_HOST', 'HTTP_X_FORWARDED_FOR', 'HTTP_X_FORWARDED_PROTO', 'HTTP_X_FORWARDED_HOST', 'REQUEST_URI'] as $name) {
            echo "$name=", $_SERVER[$name] ?? '', "\n";
        }
        break;
    case '/form':
        echo json_encode($_POST, JSON_UNESCAPED_UNICODE);
        break;
    case '/upload':
        $file = $_FILES['file'];
        echo "$file[name] $file[size] ", hash_file('sha256', $file['tmp_name']);
        break;
    case '/put':
        echo $_SERVER['REQUEST_METHOD'], ' ', hash('sha256', file_get_contents('php://input'));
        break;
    case '/moved':
        setcookie('seen', 'yes');
        header('Location: /arrived?from=moved', true, 302);
        break;
    case '/arrived':
        echo 'arrived with ', $_COOKIE['seen'] ?? 'no cookie';
        break;
    case '/error':
        http_response_code(500);
        echo 'broken, says PHP';
        break;
    default:
        echo 'php';
}
