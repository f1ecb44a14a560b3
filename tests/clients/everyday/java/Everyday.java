// Everyday steps with web3j, its filters among them.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigInteger;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.web3j.crypto.Credentials;
import org.web3j.protocol.Web3j;
import org.web3j.protocol.core.DefaultBlockParameter;
import org.web3j.protocol.core.DefaultBlockParameterName;
import org.web3j.protocol.core.Response;
import org.web3j.protocol.core.methods.request.EthFilter;
import org.web3j.protocol.core.methods.request.Transaction;
import org.web3j.protocol.http.HttpService;
import org.web3j.tx.RawTransactionManager;
import org.web3j.tx.Transfer;
import org.web3j.utils.Convert;

class Everyday {
    static final ObjectMapper JSON = new ObjectMapper();

    static void step(String name, Callable<Object> ask) throws Exception {
        Map<String, String> line;
        try {
            line = Map.of("step", name, "value", String.valueOf(ask.call()));
        } catch (Exception error) {
            line = Map.of("step", name, "error", String.valueOf(error));
        }
        System.out.println(JSON.writeValueAsString(line));
    }

    /** The result of a response; an error of JSON-RPC ends the step. */
    static <T> T of(Response<T> response) {
        if (response.hasError()) throw new RuntimeException(response.getError().getMessage());
        return response.getResult();
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode facts = JSON.readTree(Path.of(arguments[1]).toFile());
        Web3j web3 = Web3j.build(new HttpService(arguments[0]), 200, java.util.concurrent.Executors.newScheduledThreadPool(2));
        String address = facts.get("address").asText(), contract = facts.get("contract").asText();
        String hash = facts.get("transaction").asText();
        BigInteger height = BigInteger.valueOf(facts.get("height").asLong());
        DefaultBlockParameter at = DefaultBlockParameter.valueOf(height), first = DefaultBlockParameter.valueOf(BigInteger.ZERO);
        step("chain id", () -> of(web3.ethChainId().send()));
        step("head", () -> web3.ethBlockNumber().send().getBlockNumber().compareTo(height) >= 0);
        step("block", () -> of(web3.ethGetBlockByNumber(at, false).send()).getHash());
        step("transaction", () -> of(web3.ethGetTransactionByHash(hash).send()).getFrom());
        step("receipt", () -> of(web3.ethGetTransactionReceipt(hash).send()).getGasUsed());
        step("logs", () -> of(web3.ethGetLogs(new EthFilter(first, at, contract)).send()).size());
        step("balance", () -> of(web3.ethGetBalance(address, at).send()));
        step("nonce", () -> of(web3.ethGetTransactionCount(address, at).send()));
        step("code", () -> of(web3.ethGetCode(contract, at).send()));
        step("storage", () -> of(web3.ethGetStorageAt(contract, BigInteger.ZERO, at).send()));
        Transaction call = Transaction.createEthCallTransaction(address, contract, "0x");
        step("call", () -> of(web3.ethCall(call, at).send()));
        step("estimate", () -> of(web3.ethEstimateGas(call).send()));
        step("prices", () -> web3.ethGasPrice().send().getGasPrice().signum());
        step("past logs by a filter", () -> web3.ethLogFlowable(new EthFilter(first, at, contract))
                .timeout(20, TimeUnit.SECONDS).firstOrError().blockingGet().getTransactionHash());
        step("pending filter", () -> {
            BigInteger id = web3.ethNewPendingTransactionFilter().send().getFilterId();
            int found = of(web3.ethGetFilterChanges(id).send()).size();
            return found >= 0 && web3.ethUninstallFilter(id).send().isUninstalled();
        });
        step("send, pending seen, and wait", () -> sent(web3, facts, address));
        System.exit(0);
    }

    /** Sends a transfer, sees it in a pending filter, and waits for its receipt. */
    static Object sent(Web3j web3, JsonNode facts, String to) throws Exception {
        var seen = web3.ethPendingTransactionHashFlowable().replay();
        var subscription = seen.connect();
        Credentials from = Credentials.create(facts.get("key").asText());
        var manager = new RawTransactionManager(web3, from, facts.get("chain").asLong(), 120, 500);
        BigInteger price = web3.ethGasPrice().send().getGasPrice().shiftLeft(1);
        var receipt = new Transfer(web3, manager)
                .sendFunds(to, java.math.BigDecimal.ONE, Convert.Unit.WEI, price, BigInteger.valueOf(21000)).send();
        String hash = seen.filter(receipt.getTransactionHash()::equals)
                .timeout(20, TimeUnit.SECONDS).firstOrError().blockingGet();
        subscription.dispose();
        return receipt.getStatus() + hash.equals(receipt.getTransactionHash());
    }
}
